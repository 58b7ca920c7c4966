"""Accounts, sessions, scores and ranks: immutable data and the rules that apply to it.

User ids are UUIDs in lower-case text, which sort as PostgreSQL sorts them. Times are aware
datetimes in UTC with microsecond precision.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tally.errors import Conflict, Forbidden, Invalid, Unavailable

# The largest integer that a double represents exactly, and so the largest that is safe in Redis
# and JSON.
MAX_SCORE: Final = 2**53 - 1
MAX_ACTION_SCORE: Final = 10_000
MAX_ADJUSTMENT: Final = 1_000_000_000
MAX_ADJUSTMENT_ID_LENGTH: Final = 64
MAX_REASON_LENGTH: Final = 500
MAX_ACTION_ID_LENGTH: Final = 100
MAX_USERNAME_LENGTH: Final = 50
MAX_EMAIL_LENGTH: Final = 255
MAX_AVATAR_URL_LENGTH: Final = 500
MAX_USER_AGENT_LENGTH: Final = 500
MAX_PAGE_SIZE: Final = 100

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class CacheUnavailable(Unavailable):
    """Redis did not respond. PostgreSQL has the same data, so callers fall back to it."""

    default_code = "cache_unavailable"


class LeaderboardNotCached(CacheUnavailable):
    """Redis responds but holds no complete leaderboard: it restarted, or no rebuild has run yet."""

    default_code = "leaderboard_not_cached"


class ForeignActionToken(Invalid):
    """Another player has already used the action token."""

    default_code = "invalid_action_token"


class ScoreOverflow(Conflict):
    """The score would exceed `MAX_SCORE`; nothing was added."""

    default_code = "score_too_great"


class ScoreUnderflow(Conflict):
    """The score would be negative; nothing was subtracted."""

    default_code = "score_too_small"


class PlayerBanned(Forbidden):
    """The player is banned: the score is kept, but does not change or appear anywhere."""

    default_code = "player_banned"


class UsernameTaken(Conflict):
    """Another account has this username."""

    default_code = "username_taken"


class EmailTaken(Conflict):
    """Another account has this email address."""

    default_code = "email_taken"


class RebuildInProgress(Conflict):
    """Another process is rebuilding the leaderboard."""

    default_code = "rebuild_under_way"


class ActionExists(Conflict):
    """The action was reported before."""

    default_code = "action_exists"


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


@dataclass(frozen=True, slots=True)
class CompletedAction:
    """An action that a game server reports as completed by a player, worth at most `max_score`."""

    action_id: str
    user_id: str
    max_score: int
    completed_at: datetime
    expires_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """Points to add for one action token whose signature and limit have been verified."""

    token_hash: str
    action_id: str
    user_id: str
    score_delta: int
    token_expires_at: datetime
    at: datetime
    client_info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Points that an operator adds or subtracts; `adjustment_id` makes it idempotent."""

    adjustment_id: str
    user_id: str
    score_delta: int
    reason: str


@dataclass(frozen=True, slots=True)
class AppliedScoreChange:
    """The outcome of an action's first use; `is_replay` if this was not the first use.

    `token_hash` is that of the token used first. `response` is the stored response of the first
    use, byte for byte, or None if none is stored. `score` is None for a replay.
    """

    token_hash: str
    score: "Score | None"
    score_delta: int
    score_before: int
    score_after: int
    at: datetime
    is_replay: bool
    response: bytes | None = None


@dataclass(frozen=True, slots=True)
class ScoreEvent:
    """A row of `score_events`, with all its columns; `user_id` is None for deleted accounts."""

    event_id: str
    user_id: str | None
    action_id: str
    score_delta: int
    score_before: int
    score_after: int
    created_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)
    client_info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScoreEventPage:
    """Events, newest first; `next_key` starts the next page and is None on the last page."""

    events: tuple[ScoreEvent, ...]
    next_key: tuple[datetime, str] | None


@dataclass(frozen=True, slots=True)
class Score:
    """A player's score, the time it was first reached, and what leaderboards show beside it.

    `revision` counts the changes of all of it; 0 is the initial score.
    """

    user_id: str
    username: str
    score: int
    reached_at: datetime
    revision: int = 0
    avatar_url: str | None = None

    @property
    def order(self) -> tuple[int, datetime, int]:
        """Sort key, highest rank first: score, then earliest time, then greatest user id."""
        return (-self.score, self.reached_at, -uuid.UUID(self.user_id).int)


@dataclass(frozen=True, slots=True)
class Standing:
    """A player's rank and score; ranks start at 1 and are unique."""

    rank: int
    user_id: str
    username: str
    score: int
    reached_at: datetime
    avatar_url: str | None = None


@dataclass(frozen=True, slots=True)
class LeaderboardPage:
    """Consecutive standings, the number of players, and the time of the last score change.

    `changed_at` is None if no score has changed within the retained history.
    """

    standings: tuple[Standing, ...]
    total_players: int
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Differences between the leaderboard in Redis and PostgreSQL.

    Of `compared` players, `missing` are not in Redis and `wrong` have another score, time or name
    there. `extra` are players in Redis without an account, `strays` are members that belong to no
    player. `repaired` counts the differences that were fixed; `examples` are some user ids.
    """

    compared: int = 0
    missing: int = 0
    wrong: int = 0
    extra: int = 0
    strays: int = 0
    repaired: int = 0
    examples: tuple[str, ...] = ()

    @property
    def differences(self) -> int:
        return self.missing + self.wrong + self.extra + self.strays


@dataclass(frozen=True, slots=True)
class DatabaseStats:
    """PostgreSQL: bytes on disk, connections, total transactions, buffer cache hit ratio."""

    size: int
    connections: int
    transactions: int
    cache_hit_ratio: float


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Redis: product and version, bytes in memory, keys, operations per second, hit ratio."""

    version: str
    memory: int
    keys: int
    operations_per_second: int
    hit_ratio: float


def percentile(rank: int, total_players: int) -> float:
    """Return the percentage of other players with a lower rank; 100 for the only player."""
    if total_players <= 1:
        return 100.0
    return round(100 * (total_players - rank) / (total_players - 1), 2)


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


def to_microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


def from_microseconds(since_epoch: int) -> datetime:
    return EPOCH + since_epoch * _MICROSECOND
