"""Action tokens: signed proof that a game server reported an action as completed by a player.

A token is `base64url(payload).base64url(HMAC-SHA256(payload))`, both without padding. The payload
is JSON: action, player, maximum score, expiry and key id. Replay protection stores the SHA-256 of
the token's text, so other base64 spellings of the same bytes are rejected.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import msgspec

from tally.errors import Invalid
from tally.kit.keyring import Keyring
from tally.scoreboard.model.scores import (
    MAX_ACTION_ID_LENGTH,
    MAX_ACTION_SCORE,
    CompletedAction,
    from_microseconds,
    to_microseconds,
)

# The longest token issued here has about 500 characters.
MAX_TOKEN_LENGTH: Final = 2048
_MICROSECONDS_PER_SECOND: Final = 1_000_000
_MAX_EXPIRY: Final = 253_402_300_799  # the end of the year 9999, the last that datetime supports


@dataclass(frozen=True, slots=True)
class ActionToken:
    """A token's claims after signature verification; expiry and reuse are not checked yet."""

    token_hash: str
    action_id: str
    user_id: str
    max_score: int
    expires_at: datetime


class _Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action_id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ACTION_ID_LENGTH)]
    user_id: Annotated[str, msgspec.Meta(min_length=36, max_length=36)]
    max_score: Annotated[int, msgspec.Meta(ge=1, le=MAX_ACTION_SCORE)]
    # Seconds since 1970.
    expires_at: Annotated[int, msgspec.Meta(ge=0, le=_MAX_EXPIRY)]
    key_id: str


_decoder: Final = msgspec.json.Decoder(_Payload)


class ActionTokens:
    """Issues and verifies action tokens."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys

    def issue(self, action: CompletedAction) -> str:
        """Return the token for an action; its expiry is truncated to seconds."""
        key = self._keys.signing
        expires_at = to_microseconds(action.expires_at) // _MICROSECONDS_PER_SECOND
        payload = msgspec.json.encode(
            _Payload(action.action_id, action.user_id, action.max_score, expires_at, key.key_id)
        )
        return f"{_encode(payload)}.{_encode(key.signature(payload))}"

    def verify(self, token: str) -> ActionToken:
        """Return the token's claims; raises Invalid with the same message for every defect."""
        if len(token) > MAX_TOKEN_LENGTH or not token.isascii():
            raise invalid_action_token()
        encoded, dot, encoded_signature = token.partition(".")
        payload, signature = _decode(encoded), _decode(encoded_signature)
        if not dot or payload is None or signature is None:
            raise invalid_action_token()
        try:
            claims = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid_action_token() from error
        key = self._keys.get(claims.key_id)
        if key is None or not hmac.compare_digest(signature, key.signature(payload)):
            raise invalid_action_token()
        expires_at = from_microseconds(claims.expires_at * _MICROSECONDS_PER_SECOND)
        return ActionToken(
            hash_token(token), claims.action_id, claims.user_id, claims.max_score, expires_at
        )


def invalid_action_token(message: str = "Invalid action token") -> Invalid:
    return Invalid(message, code="invalid_action_token", field="action_token")


def hash_token(token: str) -> str:
    """Return the hex SHA-256 under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def truncate_to_second(moment: datetime) -> datetime:
    """Drop the fraction of a second, which tokens cannot represent."""
    return moment.replace(microsecond=0)


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes | None:
    """Decode unpadded base64url; None if `text` is not its canonical form."""
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    return content if _encode(content) == text else None
