"""Action tokens: issue and verification; every other text is rejected."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import Invalid
from tally.kit.keyring import Key, Keyring
from tally.scoreboard.model.scores import MAX_ACTION_ID_LENGTH, MAX_ACTION_SCORE, CompletedAction
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


def expect_rejected(token: str, tokens: ActionTokens = TOKENS) -> None:
    with pytest.raises(Invalid, match="Invalid action token") as raised:
        tokens.verify(token)
    assert raised.value.code == "invalid_action_token"


@given(
    st.text(min_size=1, max_size=MAX_ACTION_ID_LENGTH).filter(str.isprintable),
    st.integers(1, MAX_ACTION_SCORE),
)
def test_a_verified_token_has_the_claims_it_was_issued_with(action_id: str, max_score: int) -> None:
    token = TOKENS.issue(action(action_id, max_score))
    verified = TOKENS.verify(token)
    assert (verified.action_id, verified.user_id, verified.max_score, verified.expires_at) == (
        action_id,
        USER,
        max_score,
        NOW,
    )
    assert verified.token_hash == hash_token(token)
    assert len(token) <= MAX_TOKEN_LENGTH


@given(st.data())
def test_a_token_with_a_changed_added_or_missing_character_is_rejected(
    data: st.DataObject,
) -> None:
    """Even if base64 decodes to the same bytes: only the canonical encoding is valid."""
    token = TOKENS.issue(action())
    position = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("AQgw019-_=+/. \n\u00e9"))
    changed = {
        token[:position] + other + token[position + 1 :],
        token[:position] + other + token[position:],
        token[:position],
    }
    for text in changed - {token}:
        expect_rejected(text)


@given(st.text(max_size=200))
def test_arbitrary_text_is_rejected(text: str) -> None:
    expect_rejected(text)


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
        {"key_id": "unknown"},
        {"more": 1},
    ],
)
def test_a_signed_but_invalid_payload_is_rejected(
    change: dict[str, Any],
) -> None:
    payload = {
        "action_id": "a",
        "user_id": USER,
        "max_score": 100,
        "expires_at": 1,
        "key_id": Key.of(NEW).key_id,
    }
    assert TOKENS.verify(signed(json.dumps(payload).encode())).max_score == 100
    expect_rejected(signed(json.dumps(payload | change).encode()))


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 1500], ids=repr)
def test_a_malformed_payload_is_rejected(payload: bytes) -> None:
    expect_rejected(signed(payload))


def test_a_token_of_a_removed_key_is_rejected() -> None:
    """Tokens of an old key are valid while it is in the keyring."""
    token = ActionTokens(Keyring([OLD])).issue(action())
    assert TOKENS.verify(token).action_id == "level-3"
    expect_rejected(token, ActionTokens(Keyring([NEW])))


def test_a_token_signed_with_another_key_is_rejected() -> None:
    """Knowledge of the payload without the key is not enough."""
    payload, _, _ = TOKENS.issue(action()).partition(".")
    content = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    assert TOKENS.verify(signed(content)).action_id == "level-3"
    expect_rejected(signed(content, OLD))
    expect_rejected(signed(content, Secret("another key of at least 32 characters")))


def test_an_issued_token_stays_valid() -> None:
    """Players redeem tokens that an earlier revision of the server issued."""
    issued = (
        "eyJhY3Rpb25faWQiOiJsZXZlbC0zIiwidXNlcl9pZCI6IjBiMWU5YzRlLTZkMGItNGM3Yi05YzQxLTBhOWYzZjBmMWEy"
        "YiIsIm1heF9zY29yZSI6MTAwLCJleHBpcmVzX2F0IjoxNzY3MjI1NjAwLCJrZXlfaWQiOiJkZTM3YjgzNDgwNjIifQ"
        ".BJXSAORPU1XO9SQ6jPuLwbObCqn84WQ00Fj5w2o49O0"
    )
    assert TOKENS.issue(action()) == issued
    assert TOKENS.verify(issued).action_id == "level-3"
