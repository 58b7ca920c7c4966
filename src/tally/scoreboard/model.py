"""What a player, a session, a score and a place on the board are, and the rules about them.

No I/O, no clock.

Ids of people are UUIDs in lower-case text, whose order as text is that of PostgreSQL. Moments are
aware datetimes in UTC, exact to the microsecond.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tally.errors import Conflict, Invalid, Unavailable

# The greatest whole number that a double, and with it Redis and every JSON reader, tells from its
# neighbours.
MAX_SCORE: Final = 2**53 - 1
MAX_ACTION_SCORE: Final = 10_000
MAX_ACTION_ID_LENGTH: Final = 100
MAX_USERNAME_LENGTH: Final = 50
MAX_EMAIL_LENGTH: Final = 255
MAX_AVATAR_URL_LENGTH: Final = 500
MAX_USER_AGENT_LENGTH: Final = 500
MAX_PAGE_SIZE: Final = 100

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class CacheUnavailable(Unavailable):
    """Redis does not answer.

    PostgreSQL knows everything that Redis does, so this is a reason to ask there, not to give up.
    """

    default_code = "cache_away"


class LeaderboardNotCached(CacheUnavailable):
    """Redis answers, but has no whole board: it was restarted, or nobody has built one yet.

    A rebuild is called for.
    """

    default_code = "board_missing"


class ForeignActionToken(Invalid):
    """The action token was already used, by somebody else."""

    default_code = "invalid_action_token"


class ScoreOverflow(Conflict):
    """With these points the score would pass the greatest number that everyone can read; nothing was added."""

    default_code = "score_too_great"


class UsernameTaken(Conflict):
    default_code = "username_taken"


class EmailTaken(Conflict):
    default_code = "email_taken"


class RebuildInProgress(Conflict):
    """Somebody is rebuilding the board already."""

    default_code = "rebuild_under_way"


class ActionExists(Conflict):
    """This action was vouched for before."""

    default_code = "action_exists"


@dataclass(frozen=True, slots=True)
class User:
    """A player's account. The hash of the password is not part of it: see `UserCredentials`."""

    user_id: str
    username: str
    email: str
    created_at: datetime
    updated_at: datetime
    avatar_url: str | None = None


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """What a login is checked against."""

    user: User
    password_hash: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NewUser:
    """An account to be made; names and addresses are unique without regard to case."""

    user_id: str
    username: str
    email: str
    password_hash: str = field(repr=False)
    avatar_url: str | None = None


@dataclass(frozen=True, slots=True)
class PlayerSession:
    """A login.

    `token_hash` is the SHA-256, in hex, of the access token in force; `refresh_hash` of what renews
    it.
    """

    session_id: str
    user_id: str
    token_hash: str
    refresh_hash: str | None
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    ip_address: str | None = None
    user_agent: str | None = None

    def is_active(self, now: datetime) -> bool:
        return self.revoked_at is None and now < self.expires_at


@dataclass(frozen=True, slots=True)
class SessionRenewal:
    """How an attempt to renew a session ended.

    `session` is the renewed session, or None where the refresh token was not good. `void_hashes`
    are access tokens that no longer hold and must leave the cache. `is_theft` tells that the token
    had been used before, so that somebody has a copy: the session has been revoked.
    """

    session: PlayerSession | None
    revoked_hashes: tuple[str, ...] = ()
    is_reuse: bool = False


@dataclass(frozen=True, slots=True)
class CachedSession:
    """What the cache says of an access token, found by its hash."""

    user_id: str
    session_id: str
    expires_at: datetime
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class CompletedAction:
    """What a game server vouches for: this player finished this action, worth at most so many points."""

    action_id: str
    user_id: str
    max_score: int
    completed_at: datetime
    expires_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """Points to be added for one action token, whose signature and limit have been checked."""

    token_hash: str
    action_id: str
    user_id: str
    score_delta: int
    token_expires_at: datetime
    at: datetime
    client_info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppliedScoreChange:
    """What came of an action token: now, or the first time it was used.

    `score_delta`, `score_before`, `score_after` and `at` are those of the first use. `response` is
    the answer that was given then, byte for byte, or None as long as nobody has kept one.
    """

    user_id: str
    username: str
    score_delta: int
    score_before: int
    score_after: int
    at: datetime
    is_replay: bool
    response: bytes | None = None


@dataclass(frozen=True, slots=True)
class ScoreEvent:
    """One line of a player's history; `user_id` is None once the account is gone."""

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
    """Events, newest first; `next_key` says where the next page starts, None after the last."""

    events: tuple[ScoreEvent, ...]
    next_key: tuple[datetime, str] | None


@dataclass(frozen=True, slots=True)
class Score:
    """A player's score, and when it was first reached.

    Later is always greater: points are added, never taken.
    """

    user_id: str
    username: str
    score: int
    reached_at: datetime

    @property
    def order(self) -> tuple[int, datetime, int]:
        """The place on the board, smallest first: more points, then who came first, then the greater id."""
        return (-self.score, self.reached_at, -uuid.UUID(self.user_id).int)


@dataclass(frozen=True, slots=True)
class Standing:
    """A place on the board; ranks count from 1, and no two players share one."""

    rank: int
    user_id: str
    username: str
    score: int
    reached_at: datetime


@dataclass(frozen=True, slots=True)
class LeaderboardPage:
    """A stretch of the board, how many players it has in all, and when a score last changed (None: never, or long ago)."""

    standings: tuple[Standing, ...]
    total_players: int
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class DriftReport:
    """How the board in Redis differs from PostgreSQL: how many players were compared, and what was found.

    `missing` have no place in Redis, `wrong` another score, time or name, `extra` no account;
    `strays` are places that belong to nobody. `healed` of all these were set right. `examples` are
    some of the players concerned.
    """

    compared: int = 0
    missing: int = 0
    wrong: int = 0
    extra: int = 0
    strays: int = 0
    repaired: int = 0
    examples: tuple[str, ...] = ()

    @property
    def found(self) -> int:
        return self.missing + self.wrong + self.extra + self.strays


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """What a limit says of a request: `reset_after` are the seconds until the window is empty, `retry_after` until one fits."""

    is_allowed: bool
    limit: int
    remaining: int
    reset_after: float
    retry_after: float = 0.0


def percentile(rank: int, total_players: int) -> float:
    """The share of the other players who are behind, in percent, with two decimals; who plays alone is ahead of all."""
    if total_players <= 1:
        return 100.0
    return round(100 * (total_players - rank) / (total_players - 1), 2)


def is_canonical_user_id(text: str) -> bool:
    """Whether that is an id in its one spelling."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def parse_user_id(text: str) -> str:
    """The id in its one spelling, or Invalid."""
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise Invalid("user_id must be a UUID", field="user_id") from error


def to_microseconds(moment: datetime) -> int:
    """Whole microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


def from_microseconds(microseconds_since_1970: int) -> datetime:
    return EPOCH + microseconds_since_1970 * _MICROSECOND
