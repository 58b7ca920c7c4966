"""A bad file is rejected with the reason: damaged, hostile, oversized or implausible."""

import gzip
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from fit_tool.profile.profile_type import FileType
from fit_tool.profile.profile_type import Sport as FitSport
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.collect.activity_files.__main__ import parse, parse_to_json
from tally.collect.activity_files.process import FileParser
from tally.errors import Invalid, TallyError, TooLarge
from tests.collect import activity_file_factory as files
from tests.collect.activity_file_factory import FORMATS, RIDE, sample

MAX_BYTES = 2_000_000
CODES = {
    "corrupt_file",
    "file_too_complex",
    "invalid_workout",
    "malformed_gzip",
    "too_large",
    "unknown_file_format",
}
BOMB = b"""<?xml version="1.0"?><!DOCTYPE gpx [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>
<gpx><trk><name>&c;</name></trk></gpx>"""
EXTERNAL = b"""<?xml version="1.0"?><!DOCTYPE gpx [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<gpx><trk><name>&x;</name></trk></gpx>"""
EXTERNAL_DTD = b'<?xml version="1.0"?><!DOCTYPE gpx SYSTEM "http://127.0.0.1:1/x.dtd"><gpx/>'


def edited(file_format: str, old: bytes, new: bytes) -> bytes:
    content = sample(file_format)
    assert old in content
    return content.replace(old, new, 1)


Case = tuple[Callable[[], bytes], str, str]
FORMAT_CASES: dict[str, Case] = {
    "empty": (lambda: b"", "unknown_file_format", "FIT, GPX or TCX"),
    "pdf": (lambda: b"%PDF-1.7", "unknown_file_format", "FIT, GPX or TCX"),
    "zip": (lambda: b"PK\x03\x04", "unknown_file_format", "extract the archive"),
    "html": (lambda: b"<html><body/></html>", "unknown_file_format", "not html"),
    "gzip twice": (
        lambda: gzip.compress(gzip.compress(sample("GPX"))),
        "unknown_file_format",
        "FIT, GPX",
    ),
    "entity bomb": (lambda: BOMB, "corrupt_file", "DOCTYPE"),
    "external entity": (lambda: EXTERNAL, "corrupt_file", "DOCTYPE"),
    "external DTD": (lambda: EXTERNAL_DTD, "corrupt_file", "DOCTYPE"),
    "nested": (lambda: b"<gpx>" + b"<a>" * 40, "file_too_complex", "nested"),
    "deeply nested": (lambda: b"<gpx>" * 100_000, "file_too_complex", "nested"),
    "one bracket": (lambda: b"<", "corrupt_file", "malformed"),
    "truncated GPX": (lambda: sample("GPX")[:-20], "corrupt_file", "malformed"),
    "truncated FIT": (lambda: sample("FIT")[:-20], "corrupt_file", "truncated"),
    "FIT header only": (lambda: sample("FIT")[:14], "corrupt_file", "truncated"),
    "FIT checksum": (lambda: sample("FIT")[:-1] + b"\x00", "corrupt_file", "checksum"),
    "truncated gzip": (lambda: gzip.compress(sample("FIT"))[:-9], "malformed_gzip", "gzip"),
    "two gzip members": (lambda: gzip.compress(b"x") * 2, "malformed_gzip", "one gzip member"),
    "gzip bomb": (lambda: gzip.compress(b"\x00" * 5_000_000), "too_large", "decompressed"),
}
VALUE_CASES: dict[str, Case] = {
    name: (content, "invalid_workout", words)
    for name, content, words in (
        ("no track", lambda: b"<gpx/>", "track with times"),
        ("NaN", lambda: edited("GPX", b'lon="8.0"', b'lon="NaN"'), "lon must be a number"),
        ("huge", lambda: edited("GPX", b'lon="8.0"', b'lon="1e308"'), "longitude"),
        ("no lat", lambda: edited("GPX", b'lat="47.0000000" ', b""), "lat and lon"),
        ("in space", lambda: edited("GPX", b"<ele>400.0", b"<ele>1e9"), "elevation"),
        ("no time", lambda: edited("GPX", b"</ele><time>20", b"</ele><time>xx"), "time must be"),
        ("a century", lambda: edited("GPX", b"</ele><time>20", b"</ele><time>19"), "elapsed time"),
        ("a rocket", lambda: files.gpx(replace(RIDE, seconds=99)), "speed of the workout"),
        ("at once", lambda: files.tcx(replace(RIDE, seconds=0)), "speed of the workout"),
        (
            "negative distance",
            lambda: edited("TCX", b"<DistanceMeters>10000.0", b"<DistanceMeters>-1"),
            "DistanceMeters must not be negative",
        ),
        (
            "infinite distance",
            lambda: edited("TCX", b"<DistanceMeters>10000.0", b"<DistanceMeters>inf"),
            "must be a number",
        ),
        (
            "two activities",
            lambda: edited("TCX", b"</Activities>", b"<Activity/></Activities>"),
            "one activity, not 2",
        ),
        (
            "two sports",
            lambda: files.fit(RIDE, sports=(FitSport.SWIMMING, FitSport.CYCLING)),
            "one sport, not Ride, Swim",
        ),
        ("a course", lambda: files.fit(RIDE, file_type=FileType.COURSE), "not course"),
    )
}
CASES = FORMAT_CASES | VALUE_CASES


@pytest.mark.parametrize("name", CASES)
def test_a_bad_file_is_rejected_with_the_reason(name: str) -> None:
    build, code, words = CASES[name]
    with pytest.raises(TallyError) as raised:
        parse(build(), MAX_BYTES)
    assert (raised.value.code, words in raised.value.message) == (code, True), raised.value


def mutate(content: bytes, seed: int) -> bytes:
    """Damage a file: change, delete, insert and repeat bytes."""
    rng = random.Random(seed)
    damaged = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        start = rng.randrange(len(damaged) or 1)
        end = start + rng.choice([1, 1, 1, 2, 8, 100])
        damaged[start:end] = rng.choice(
            [
                rng.randbytes(end - start),
                b"",
                rng.randbytes(end - start) + damaged[start:end],
                damaged[start:end] * 3,
            ]
        )
    return bytes(damaged)


def checked_outcome(content: bytes) -> Any:
    """Parse a file and require a summary within its limits, or an error with a known code."""
    outcome = msgspec.json.decode(parse_to_json(content, MAX_BYTES))
    if outcome["failure"] is not None:
        assert outcome["failure"]["code"] in CODES
        assert outcome["failure"]["message"]
    else:
        parsed = outcome["parsed"]
        assert 0 <= float(parsed["distance"]) <= 20_000_000
        assert 0 <= float(parsed["elevation"]) <= 200_000
        assert 0 <= parsed["moving_seconds"] <= parsed["elapsed_seconds"] <= 31 * 86_400
        assert parsed["started_at"].endswith("Z")
    return outcome


@pytest.mark.soak
@pytest.mark.parametrize("file_format", FORMATS)
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_a_damaged_file_is_summarized_or_rejected(file_format: str, seed: int) -> None:
    checked_outcome(mutate(sample(file_format), seed))


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=200), prefix=st.sampled_from([b"", b"\x1f\x8b", b"<gpx>", b"<"]))
def test_random_bytes_are_rejected(content: bytes, prefix: bytes) -> None:
    assert checked_outcome(prefix + content)["failure"] is not None


async def test_the_parser_process_returns_a_summary_or_an_error() -> None:
    parser = FileParser(MAX_BYTES)
    assert await parser.parse(sample("FIT")) == parse(sample("FIT"), MAX_BYTES)
    with pytest.raises(Invalid, match="DOCTYPE"):
        await parser.parse(BOMB)


async def test_a_file_that_takes_too_long_is_rejected() -> None:
    """The kernel ends the process when its processor time is used up."""
    parser = FileParser(50_000_000, cpu_seconds=1)
    ride = replace(RIDE, points=150_000)
    with pytest.raises(TooLarge, match="takes too long") as raised:
        await parser.parse(files.tcx(ride))
    assert raised.value.code == "file_too_complex"


async def test_a_file_that_needs_too_much_memory_is_rejected() -> None:
    parser = FileParser(50_000_000, memory_bytes=150_000_000)
    content = b"<gpx><trk><name>" + b"x" * 9_000_000 + b"</name>"
    with pytest.raises((TooLarge, Invalid)) as raised:
        await parser.parse(content * 5)
    assert raised.value.code in CODES
