"""Accounts, sessions and the request windows of clients: immutable data.

User ids are UUIDs in lower-case text, which sort as PostgreSQL sorts them. Times are aware
datetimes in UTC with microsecond precision.
"""

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tally.errors import Invalid
from tally.scoreboard.model.boards import BoardPlace

MAX_USERNAME_LENGTH: Final = 50
MAX_EMAIL_LENGTH: Final = 255
MAX_AVATAR_URL_LENGTH: Final = 500
MAX_USER_AGENT_LENGTH: Final = 500


@dataclass(frozen=True, slots=True)
class User:
    """A player's account, without the password hash (see `UserCredentials`)."""

    user_id: str
    username: str
    email: str
    created_at: datetime
    updated_at: datetime
    avatar_url: str | None = None


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """Changes of a player's account; None keeps the value.

    `has_avatar` means that `avatar_url` is the new avatar, or none.
    """

    username: str | None = None
    email: str | None = None
    avatar_url: str | None = None
    has_avatar: bool = False


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """An account and the password hash to verify a login against.

    `is_known_address` means that the player has signed in from the client's address before.
    """

    user: User
    password_hash: str = field(repr=False)
    is_known_address: bool = False


@dataclass(frozen=True, slots=True)
class PasswordChange:
    """New password of a player, requested in a session, which stays open."""

    user_id: str
    session_id: str
    old_hash: str = field(repr=False)
    new_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NewUser:
    """An account to create; username and email are unique regardless of case."""

    user_id: str
    username: str
    email: str
    password_hash: str = field(repr=False)
    avatar_url: str | None = None


@dataclass(frozen=True, slots=True)
class DeletedAccount:
    """What Redis has of a deleted account: its scores, sessions and used action tokens."""

    places: list[BoardPlace]
    access_token_hashes: list[str]
    action_token_hashes: list[str]


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """The address and user agent of an HTTP client, as far as they are known."""

    ip_address: str | None = None
    user_agent: str | None = None


@dataclass(frozen=True, slots=True)
class RefreshState:
    """The refresh token of a session: its hex SHA-256, and what derives its successor.

    `generation` counts the refreshes; the last one was at `renewed_at`.
    """

    token_hash: str | None
    secret: bytes = field(repr=False)
    generation: int
    renewed_at: datetime


@dataclass(frozen=True, slots=True)
class PlayerSession:
    """A login; `token_hash` is the hex SHA-256 of the current access token."""

    session_id: str
    user_id: str
    token_hash: str
    refresh: RefreshState
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    client: ClientInfo = ClientInfo()

    def is_active(self, now: datetime) -> bool:
        return self.revoked_at is None and now < self.expires_at


@dataclass(frozen=True, slots=True)
class CachedSession:
    """The cached state of an access token, looked up by its hash."""

    user_id: str
    session_id: str
    expires_at: datetime
    is_revoked: bool = False


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """The sliding window of a client for one kind of request, which admits `limit` requests.

    `request_id` identifies the request that it counts, so that the count can be undone.
    """

    scope: str
    client: str
    limit: int
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))


def is_canonical_user_id(text: str) -> bool:
    """Return whether `text` is a UUID in its canonical form."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def parse_user_id(text: str) -> str:
    """Return the canonical form of a UUID; raises Invalid."""
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise Invalid("user_id must be a UUID", code="invalid_field", field="user_id") from error
