"""The published JSON Schema and Swift struct of `content-state` match the payloads."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tally.cricket.model.display_content import truncate_content
from tally.cricket.model.feed import InningsFeed, MatchStatus
from tally.cricket.service.activities.match_payloads import DISMISS_IMMEDIATELY, MatchPayloads
from tally.errors import NotFound
from tally.kit.clock import ManualClock
from tests.cricket import factories
from tests.cricket.content_state import (
    SCHEMA_FILE,
    SWIFT_PAGE,
    render_page,
    render_schema,
    schema,
)
from tests.cricket.match_script import MatchScript, feed_of
from tests.cricket.pipeline_fakes import FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import open_cricket_engine, open_instance

FIRST = "1 4 6 W . 6 nb wd2 6 6 1 6 6 6 6 lb2 W C R . 6"
SECOND = "6 6 . W 4 1 2 6 6"
SWIFT_TYPES = {"String": str, "Int": int, "Bool": bool}


def strict_validator() -> Draft202012Validator:
    """Return a validator that also rejects fields that the schema does not name."""
    described = schema()
    for definition in described["$defs"].values():
        definition["additionalProperties"] = False
    Draft202012Validator.check_schema(described)
    return Draft202012Validator(described)


def swift_structs() -> dict[str, dict[str, str]]:
    """Read the structs of the documentation: fields and their Swift types."""
    page = SWIFT_PAGE.read_text(encoding="utf-8")
    structs = re.findall(r"    struct (\w+): Codable, Hashable \{\n(.*?)\n    \}", page, re.DOTALL)
    return {name: dict(re.findall(r"let (\w+): (\S+)", body)) for name, body in structs}


def check_swift(value: Any, kind: str, structs: Mapping[str, Mapping[str, str]]) -> None:
    """Check that Swift decodes a value: every field that is not optional is there."""
    if kind.startswith("["):
        assert isinstance(value, list)
        for element in value:
            check_swift(element, kind[1:-1], structs)
    elif kind in structs:
        fields = structs[kind]
        assert set(value) <= set(fields)
        for name, field in fields.items():
            if name in value:
                check_swift(value[name], field.rstrip("?"), structs)
            else:
                assert field.endswith("?"), f"{kind}.{name} is missing"
    else:
        assert type(value) is SWIFT_TYPES[kind]


def feeds() -> Iterator[tuple[str, MatchStatus]]:
    first, second = FIRST.split(), SECOND.split()
    for count in range(1, len(first) + 1):
        yield " ".join(first[:count]), MatchStatus.IN_PLAY
    for count in range(1, len(second) + 1):
        yield f"{FIRST}|{' '.join(second[:count])}", MatchStatus.IN_PLAY
    for _ in range(2):  # A result counts when two polls agree.
        yield f"{FIRST}|{SECOND}", MatchStatus.FINISHED


def _with_bowler(innings: InningsFeed) -> InningsFeed:
    """Return the innings with its last bowler bowling, as SportMonks marks one."""
    *others, last = innings.bowlers
    bowling = msgspec.structs.replace(last, is_bowling=True)
    return msgspec.structs.replace(innings, bowlers=(*others, bowling))


async def pushed_contents(directory: Path) -> list[dict[str, Any]]:
    """Return the content of every push of a match, in the neutral view and in a team's."""
    clock = ManualClock(datetime(2096, 10, 2, 12, tzinfo=UTC))
    scores, gateway = FakeScores(clock), FakePushGateway()
    match_id = factories.number()
    async with (
        open_cricket_engine(directory) as engine,
        open_instance(engine, clock, scores, gateway) as instance,
    ):
        for team in ("neutral", "10", "20"):
            await instance.follow(match_id, factories.name(), team_id=team)
        for words, status in feeds():
            script = MatchScript()
            for number, innings in enumerate(words.split("|"), 1):
                script.innings(number, innings)
            feed = feed_of(script.balls, status)
            scores.live_feeds[match_id] = msgspec.structs.replace(
                feed, match_id=match_id, innings=tuple(map(_with_bowler, feed.innings))
            )
            await clock.advance(3)
            await instance.poll()
    return [push.content for push in gateway.pushes]


def test_the_published_documents_are_up_to_date() -> None:
    """Update them with `python -m tests.cricket.content_state`."""
    assert SCHEMA_FILE.read_text(encoding="utf-8") == render_schema()
    page = SWIFT_PAGE.read_text(encoding="utf-8")
    assert render_page(page) == page
    assert "struct ContentState: Codable, Hashable" in page


async def test_every_content_of_a_match_fits_the_schema_and_the_swift_struct(
    tmp_path: Path,
) -> None:
    """Also if parts were dropped, because the payload would be too large."""
    contents = await pushed_contents(tmp_path)
    validator, structs = strict_validator(), swift_structs()
    fields = set[str]()
    for content in contents:
        fields |= content.keys()
        for size in (4_096, 700, 500, 300, 200):
            fitted = json.loads(msgspec.json.encode(truncate_content(dict(content), size)))
            validator.validate(fitted)
            check_swift(fitted, "ContentState", structs)
    # The match shows every part that a live match can show.
    assert fields >= set(structs["ContentState"]) - {"isSuperOver", "isStale", "statusText"}


async def test_the_content_of_a_deleted_match_fits_as_well() -> None:
    """Otherwise iOS would ignore the end of its Live Activities."""

    async def read_display(match_id: str, view: str) -> Mapping[str, Any]:
        raise NotFound(f"{match_id} {view}")

    payloads = MatchPayloads("65001", read_display, ManualClock())
    aps = json.loads(await payloads.end("neutral", DISMISS_IMMEDIATELY))["aps"]
    strict_validator().validate(aps["content-state"])
    check_swift(aps["content-state"], "ContentState", swift_structs())


@pytest.mark.parametrize(
    "broken", [{"teams": []}, {"timestamp": "1"}, {"unknown": 1}, {"keyEvent": {"kind": "six"}}]
)
def test_the_schema_rejects_other_content(broken: dict[str, Any]) -> None:
    team = {"id": "1", "name": "Rovers", "code": "ROV"}
    names = ("lockScreen", "compactLeading", "compactTrailing", "minimal")
    valid = {
        "matchId": "1",
        "view": "neutral",
        "status": "in_play",
        "teams": [team, team],
        "lines": dict.fromkeys(names, ""),
        "timestamp": 1,
    }
    validator = strict_validator()
    assert validator.is_valid(valid)
    assert not validator.is_valid(valid | broken)
