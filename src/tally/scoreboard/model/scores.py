"""Actions, scores and ranks: immutable data and the rules that apply to it."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tally.scoreboard.model.boards import BoardChange

# The largest integer that a double represents exactly, and so the largest that is safe in Redis
# and JSON.
MAX_SCORE: Final = 2**53 - 1
MAX_ACTION_SCORE: Final = 10_000
MAX_ADJUSTMENT: Final = 1_000_000_000
MAX_ADJUSTMENT_ID_LENGTH: Final = 64
MAX_REASON_LENGTH: Final = 500
MAX_ACTION_ID_LENGTH: Final = 100
MAX_PAGE_SIZE: Final = 100
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CompletedAction:
    """An action that a game server reports as completed by a player, worth at most `max_score`."""

    action_id: str
    user_id: str
    max_score: int
    completed_at: datetime
    expires_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)
    # None is the global leaderboard alone.
    boards: tuple[str, ...] | None = None


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
    # None is the global leaderboard.
    board: str | None = None


@dataclass(frozen=True, slots=True)
class AppliedAdjustment:
    """The points added and the score after them; `season` is that of a named board."""

    score_delta: int
    score_after: int
    season: int | None = None


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
    boards: tuple[BoardChange, ...] = ()


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
    boards: tuple[BoardChange, ...] = ()


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


def percentile(rank: int, total_players: int) -> float:
    """Return the percentage of other players with a lower rank; 100 for the only player."""
    if total_players <= 1:
        return 100.0
    return round(100 * (total_players - rank) / (total_players - 1), 2)


def to_microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


def from_microseconds(since_epoch: int) -> datetime:
    return EPOCH + since_epoch * _MICROSECOND
