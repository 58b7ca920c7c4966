"""A cursor is valid only for the query it was issued for, and only unmodified."""

import base64
import string
from decimal import Decimal

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tally.errors import Invalid
from tally.kit.cursors import Cursors, KeyValue, query_fingerprint
from tally.settings import Secret

SECRET = Secret("0123456789abcdef0123456789abcdef")
CURSORS = Cursors(SECRET)
URL_SAFE = string.ascii_letters + string.digits + "-_"

numbers = st.decimals(allow_nan=False, allow_infinity=False, places=10)
key_values = st.text() | st.binary() | st.integers(-(10**38), 10**38) | numbers
page_keys = st.dictionaries(st.text(max_size=20), key_values, max_size=4)
cursors = st.builds(CURSORS.encode, st.just("readings"), page_keys)


@given(page_keys, st.text())
def test_a_page_key_is_decoded_with_its_types(page_key: dict[str, KeyValue], purpose: str) -> None:
    decoded = CURSORS.decode(purpose, CURSORS.encode(purpose, page_key))
    assert decoded == page_key
    assert {name: type(value) for name, value in decoded.items()} == {
        n: type(v) for n, v in page_key.items()
    }


@given(page_keys)
def test_a_cursor_is_url_safe(page_key: dict[str, KeyValue]) -> None:
    assert set(CURSORS.encode("readings", page_key)) <= set(URL_SAFE)


@given(cursors, st.data())
def test_a_modified_cursor_is_rejected(cursor: str, data: st.DataObject) -> None:
    """Not even another Base64 spelling of the same bytes is valid."""
    place = data.draw(st.integers(0, len(cursor) - 1))
    letter = data.draw(st.sampled_from(URL_SAFE + "=+/ é"))
    assume(letter != cursor[place])
    with pytest.raises(Invalid, match="cursor"):
        CURSORS.decode("readings", cursor[:place] + letter + cursor[place + 1 :])


@given(cursors, st.data())
def test_a_truncated_or_extended_cursor_is_rejected(cursor: str, data: st.DataObject) -> None:
    changed = data.draw(
        st.sampled_from([cursor[:-1], cursor[1:], cursor + "A", cursor + "=", cursor * 2, ""])
    )
    with pytest.raises(Invalid):
        CURSORS.decode("readings", changed)


@given(st.text(max_size=200))
def test_arbitrary_text_is_rejected(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        CURSORS.decode("readings", text)
    assert caught.value.code == "invalid_cursor"
    assert caught.value.details["field"] == "cursor"


def test_a_cursor_of_another_query_is_rejected() -> None:
    cursor = CURSORS.encode(query_fingerprint("readings", hardware_id="A"), {"pk": "A"})
    with pytest.raises(Invalid):
        CURSORS.decode(query_fingerprint("readings", hardware_id="B"), cursor)


def test_a_cursor_of_another_secret_is_rejected() -> None:
    foreign = Cursors(Secret("another secret, just as long as ours")).encode(
        "readings", {"pk": "A"}
    )
    with pytest.raises(Invalid):
        CURSORS.decode("readings", foreign)


def test_a_cursor_of_another_version_is_rejected() -> None:
    """A cursor that another release signed with the same secret is not misread."""
    body = b"\x02" + msgspec.msgpack.encode([("pk", "s", b"A")])
    newer = (
        base64.urlsafe_b64encode(CURSORS._signature("readings", body) + body).rstrip(b"=").decode()
    )
    with pytest.raises(Invalid):
        CURSORS.decode("readings", newer)


def test_an_oversized_cursor_is_rejected_before_it_is_decoded() -> None:
    with pytest.raises(Invalid):
        CURSORS.decode("readings", "A" * 1_000_000)


def test_keys_of_maximum_length_fit() -> None:
    """Keys of a table and an index at DynamoDB's limits are decoded."""
    page_key: dict[str, KeyValue] = {
        "pk": "p" * 2048,
        "sk": b"s" * 1024,
        "gsi1pk": "g" * 2048,
        "gsi1sk": "k" * 1024,
    }
    assert CURSORS.decode("x", CURSORS.encode("x", page_key)) == page_key


def test_different_queries_have_different_fingerprints() -> None:
    """The order of filters does not matter; their names, values and types do."""
    assert query_fingerprint("a", x=1, y="2") == query_fingerprint("a", y="2", x=1)
    fingerprints = [
        query_fingerprint("a", x=1),
        query_fingerprint("a", x="1"),
        query_fingerprint("a", y=1),
        query_fingerprint("b", x=1),
    ]
    fingerprints += [
        query_fingerprint("a"),
        query_fingerprint("a", x=None),
        query_fingerprint("a", x="1,y"),
        query_fingerprint("ax1"),
    ]
    assert len(set(fingerprints)) == len(fingerprints)


def test_a_number_keeps_its_precision() -> None:
    exact = Decimal("0.12345678901234567890123456789012345678")
    assert CURSORS.decode("x", CURSORS.encode("x", {"n": exact}))["n"] == exact


def test_an_issued_cursor_stays_valid() -> None:
    """Clients continue a list after an upgrade of the server."""
    purpose = query_fingerprint("devices.readings", hardware_id="AA:BB", order="desc")
    page_key: dict[str, KeyValue] = {
        "hardware_id": "AA:BB",
        "timestamp_ms": 1704067800000,
        "n": Decimal("1.5"),
        "b": b"\x00\xff",
    }
    issued = (
        "3ohfGTcieyTcYaFsVbQqzwGUk6toYXJkd2FyZV9pZKFzxAVBQTpCQpOsdGltZXN0YW1wX21zoWnEDTE3MDQwNjc4MDAw"
        "MDCToW6hbsQDMS41k6FioWLEAgD_"
    )
    assert CURSORS.decode(purpose, issued) == page_key
    assert CURSORS.encode(purpose, page_key) == issued
