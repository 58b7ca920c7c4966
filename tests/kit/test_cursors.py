"""A cursor opens where it was sealed for, and nowhere else, and not if one letter of it is different."""

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
sealed = st.builds(CURSORS.encode, st.just("readings"), page_keys)


@given(page_keys, st.text())
def test_what_was_sealed_comes_back_with_its_types(
    page_key: dict[str, KeyValue], purpose: str
) -> None:
    opened = CURSORS.decode(purpose, CURSORS.encode(purpose, page_key))
    assert opened == page_key
    assert {name: type(value) for name, value in opened.items()} == {
        n: type(v) for n, v in page_key.items()
    }


@given(page_keys)
def test_a_cursor_can_stand_in_a_url_as_it_is(page_key: dict[str, KeyValue]) -> None:
    assert set(CURSORS.encode("readings", page_key)) <= set(URL_SAFE)


@given(sealed, st.data())
def test_a_cursor_with_any_letter_changed_is_refused(cursor: str, data: st.DataObject) -> None:
    """No spelling but the one we gave out opens, not even another spelling of the same bytes."""
    place = data.draw(st.integers(0, len(cursor) - 1))
    letter = data.draw(st.sampled_from(URL_SAFE + "=+/ é"))
    assume(letter != cursor[place])
    with pytest.raises(Invalid, match="cursor"):
        CURSORS.decode("readings", cursor[:place] + letter + cursor[place + 1 :])


@given(sealed, st.data())
def test_a_cursor_that_is_cut_or_longer_is_refused(cursor: str, data: st.DataObject) -> None:
    changed = data.draw(
        st.sampled_from([cursor[:-1], cursor[1:], cursor + "A", cursor + "=", cursor * 2, ""])
    )
    with pytest.raises(Invalid):
        CURSORS.decode("readings", changed)


@given(st.text(max_size=200))
def test_made_up_text_is_refused_and_nothing_else(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        CURSORS.decode("readings", text)
    assert caught.value.code == "invalid_cursor"
    assert caught.value.details["field"] == "cursor"


def test_a_cursor_of_another_query_is_refused() -> None:
    cursor = CURSORS.encode(query_fingerprint("readings", hardware_id="A"), {"pk": "A"})
    with pytest.raises(Invalid):
        CURSORS.decode(query_fingerprint("readings", hardware_id="B"), cursor)


def test_a_cursor_of_another_secret_is_refused() -> None:
    foreign = Cursors(Secret("another secret, just as long as ours")).encode(
        "readings", {"pk": "A"}
    )
    with pytest.raises(Invalid):
        CURSORS.decode("readings", foreign)


def test_a_cursor_of_another_version_is_refused() -> None:
    """What an older or newer release sealed with the same secret is not misread."""
    body = b"\x02" + msgspec.msgpack.encode([("pk", "s", b"A")])
    newer = (
        base64.urlsafe_b64encode(CURSORS._signature("readings", body) + body).rstrip(b"=").decode()
    )
    with pytest.raises(Invalid):
        CURSORS.decode("readings", newer)


def test_a_cursor_without_end_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(Invalid):
        CURSORS.decode("readings", "A" * 1_000_000)


def test_the_longest_keys_fit() -> None:
    """A table's and an index's keys at DynamoDB's limits come back."""
    page_key: dict[str, KeyValue] = {
        "pk": "p" * 2048,
        "sk": b"s" * 1024,
        "gsi1pk": "g" * 2048,
        "gsi1sk": "k" * 1024,
    }
    assert CURSORS.decode("x", CURSORS.encode("x", page_key)) == page_key


def test_a_fingerprint_tells_queries_apart() -> None:
    """The order of filters does not matter; their names, values and types do."""
    assert query_fingerprint("a", x=1, y="2") == query_fingerprint("a", y="2", x=1)
    made = [
        query_fingerprint("a", x=1),
        query_fingerprint("a", x="1"),
        query_fingerprint("a", y=1),
        query_fingerprint("b", x=1),
    ]
    made += [
        query_fingerprint("a"),
        query_fingerprint("a", x=None),
        query_fingerprint("a", x="1,y"),
        query_fingerprint("ax1"),
    ]
    assert len(set(made)) == len(made)


def test_a_number_keeps_its_digits() -> None:
    exact = Decimal("0.12345678901234567890123456789012345678")
    assert CURSORS.decode("x", CURSORS.encode("x", {"n": exact}))["n"] == exact
