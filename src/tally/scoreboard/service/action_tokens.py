"""Action tokens: what a game server vouches for, signed, so that nobody can invent points or move them to somebody else.

A token is `base64url(payload).base64url(HMAC-SHA256 of the payload)`, both without padding. The
payload is JSON: the action, the player, the most points it is worth, when it expires, and the key
that signed it. One token has one spelling: its SHA-256 is what keeps it from being used twice, so
another spelling of the same bytes is refused.
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
from tally.scoreboard.model import (
    MAX_ACTION_ID_LENGTH,
    MAX_ACTION_SCORE,
    CompletedAction,
    from_microseconds,
    to_microseconds,
)

# The longest that is made here has about 500 characters.
MAX_TOKEN: Final = 2048
_SECOND: Final = 1_000_000
_LATEST: Final = 253_402_300_799  # the last second of the year 9999, which is as far as dates go


@dataclass(frozen=True, slots=True)
class ActionToken:
    """What a token says, its signature checked; whether it has expired or was used is for others to find out."""

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
    expires_at: Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]
    key_id: str


_decoder: Final = msgspec.json.Decoder(_Payload)


class ActionTokens:
    """Makes tokens and opens them again."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys

    def make(self, action: CompletedAction) -> str:
        """The token of an action; the expiry is told in whole seconds."""
        key = self._keys.signing
        expires = to_microseconds(action.expires_at) // _SECOND
        payload = msgspec.json.encode(
            _Payload(action.action_id, action.user_id, action.max_score, expires, key.key_id)
        )
        return f"{_encode(payload)}.{_encode(key.signature(payload))}"

    def open(self, token: str) -> ActionToken:
        """What the token says, or Invalid with one and the same message, whatever is wrong with it."""
        if len(token) > MAX_TOKEN or not token.isascii():
            raise invalid_action_token()
        encoded, dot, encoded_signature = token.partition(".")
        payload, signature = _decode(encoded), _decode(encoded_signature)
        if not dot or payload is None or signature is None:
            raise invalid_action_token()
        try:
            told = _decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid_action_token() from error
        key = self._keys.get(told.key_id)
        if key is None or not hmac.compare_digest(signature, key.signature(payload)):
            raise invalid_action_token()
        expires_at = from_microseconds(told.expires_at * _SECOND)
        return ActionToken(
            hash_token(token), told.action_id, told.user_id, told.max_score, expires_at
        )


def invalid_action_token(message: str = "Invalid action token") -> Invalid:
    return Invalid(message, code="invalid_action_token", field="action_token")


def hash_token(token: str) -> str:
    """What stands for a token wherever it is kept: its SHA-256, in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def truncate_to_second(moment: datetime) -> datetime:
    """The moment without its fraction, as a token tells it."""
    return moment.replace(microsecond=0)


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decode(text: str) -> bytes | None:
    """The bytes of `text`, or None if it is not the one spelling of them."""
    try:
        content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    return content if _encode(content) == text else None
