"""Action tokens: what was signed is what is read, and nothing else is a token, in any spelling."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import Invalid
from tally.kit.keyring import Key, Keyring
from tally.scoreboard.model import MAX_ACTION_ID_LENGTH, MAX_ACTION_SCORE, CompletedAction
from tally.scoreboard.service.action_tokens import MAX_TOKEN_LENGTH, ActionTokens, hash_token
from tally.settings import Secret

OLD, NEW = (
    Secret("the old key of at least 32 characters"),
    Secret("the new key of at least 32 characters"),
)
TOKENS = ActionTokens(Keyring([NEW, OLD]))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
USER = "0b1e9c4e-6d0b-4c7b-9c41-0a9f3f0f1a2b"


def action(action_id: str = "level-3", max_score: int = 100) -> CompletedAction:
    return CompletedAction(action_id, USER, max_score, NOW, NOW)


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signed(payload: bytes, secret: Secret = NEW) -> str:
    return f"{encoded(payload)}.{encoded(Key.of(secret).signature(payload))}"


def check_refused(token: str, tokens: ActionTokens = TOKENS) -> None:
    with pytest.raises(Invalid, match="Invalid action token") as refused:
        tokens.verify(token)
    assert refused.value.code == "invalid_action_token"


@given(
    st.text(min_size=1, max_size=MAX_ACTION_ID_LENGTH).filter(str.isprintable),
    st.integers(1, MAX_ACTION_SCORE),
)
def test_what_was_signed_is_what_is_read(action_id: str, max_score: int) -> None:
    token = TOKENS.issue(action(action_id, max_score))
    opened = TOKENS.verify(token)
    assert (opened.action_id, opened.user_id, opened.max_score, opened.expires_at) == (
        action_id,
        USER,
        max_score,
        NOW,
    )
    assert opened.token_hash == hash_token(token)
    assert len(token) <= MAX_TOKEN_LENGTH


@given(st.data())
def test_a_token_with_any_character_changed_added_or_missing_is_refused(
    data: st.DataObject,
) -> None:
    """Also where base 64 would read the same bytes from it: one token has one spelling."""
    token = TOKENS.issue(action())
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("AQgw019-_=+/. \n\u00e9"))
    changed = {
        token[:place] + other + token[place + 1 :],
        token[:place] + other + token[place:],
        token[:place],
    }
    for each in changed - {token}:
        check_refused(each)


@given(st.text(max_size=200))
def test_what_was_never_a_token_is_refused(text: str) -> None:
    check_refused(text)


@pytest.mark.parametrize(
    "change",
    [
        {"max_score": 0},
        {"max_score": MAX_ACTION_SCORE + 1},
        {"max_score": "100"},
        {"max_score": 1.5},
        {"action_id": ""},
        {"action_id": None},
        {"user_id": "ana"},
        {"expires_at": -1},
        {"expires_at": 10**15},
        {"expires_at": "soon"},
        {"key_id": "unheard of"},
        {"more": 1},
    ],
)
def test_a_payload_that_we_would_not_make_is_refused_however_well_it_is_signed(
    change: dict[str, Any],
) -> None:
    told = {
        "action_id": "a",
        "user_id": USER,
        "max_score": 100,
        "expires_at": 1,
        "key_id": Key.of(NEW).key_id,
    }
    assert TOKENS.verify(signed(json.dumps(told).encode())).max_score == 100
    check_refused(signed(json.dumps(told | change).encode()))


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 1500], ids=repr)
def test_a_payload_that_is_no_such_json_is_refused(payload: bytes) -> None:
    check_refused(signed(payload))


def test_a_token_of_a_key_that_was_taken_away_is_refused() -> None:
    """While the old key is on the ring its tokens hold, whichever key signs now."""
    token = ActionTokens(Keyring([OLD])).issue(action())
    assert TOKENS.verify(token).action_id == "level-3"
    check_refused(token, ActionTokens(Keyring([NEW])))


def test_a_token_re_signed_with_another_key_is_refused() -> None:
    """Whoever knows the payload, and not the key, cannot make it hold."""
    payload, _, _ = TOKENS.issue(action()).partition(".")
    content = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    assert TOKENS.verify(signed(content)).action_id == "level-3"
    check_refused(signed(content, OLD))
    check_refused(signed(content, Secret("somebody's own key of 32 characters")))
