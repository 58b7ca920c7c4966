"""All repositories on one database and one Redis, with factories for players and scores."""

import itertools
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tally.kit.clock import SystemClock
from tally.kit.ids import new_uuid
from tally.scoreboard.model.accounts import NewUser, User
from tally.scoreboard.model.scores import AppliedScoreChange, Score, ScoreChange
from tally.scoreboard.repository.accounts import AccountRepository
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.repository.database import Database
from tally.scoreboard.repository.drift import DriftChecker
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.moderation import ModerationRepository
from tally.scoreboard.repository.rebuild import LeaderboardRebuilder
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.repository.sessions import PlayerSessionRepository

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
_numbers = itertools.count(1)


def at(seconds: float) -> datetime:
    """Return the time `seconds` after `START`."""
    return START + timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Repositories:
    """The repositories of one PostgreSQL and one Redis."""

    database: Database
    redis: InstrumentedRedis

    @property
    def accounts(self) -> AccountRepository:
        return AccountRepository(self.database)

    @property
    def sessions(self) -> PlayerSessionRepository:
        return PlayerSessionRepository(self.database)

    @property
    def actions(self) -> ActionRepository:
        return ActionRepository(self.database)

    @property
    def scores(self) -> ScoreRepository:
        return ScoreRepository(self.database, SystemClock())

    @property
    def events(self) -> EventRepository:
        return EventRepository(self.database)

    @property
    def moderation(self) -> ModerationRepository:
        return ModerationRepository(self.database)

    @property
    def leaderboard(self) -> LeaderboardCache:
        return LeaderboardCache(self.redis)

    @property
    def rebuilder(self) -> LeaderboardRebuilder:
        return LeaderboardRebuilder(self.redis, self.scores)

    @property
    def drift_checker(self) -> DriftChecker:
        return DriftChecker(self.leaderboard, self.scores)

    async def clear(self) -> None:
        """Delete all players and build an empty leaderboard."""
        async with self.database.use("clear") as connection:
            # DELETE is faster than TRUNCATE for a few rows.
            for table in ("consumed_tokens", "completed_actions", "score_events", "users"):
                await connection.execute(f"DELETE FROM {table}")  # noqa: S608  (constant names)
        await self.redis.client.flushdb()
        await self.rebuilder.rebuild()

    async def player(self, user_id: str | None = None, moment: datetime = START) -> User:
        """Create a player."""
        number = next(_numbers)
        account = NewUser(
            user_id or str(uuid.uuid4()), f"player_{number}", f"player{number}@example.org", "hash"
        )
        return await self.accounts.create(account, moment)

    async def write_through(self, user: User) -> Score:
        """Write the player's score from PostgreSQL to Redis."""
        score = await self.scores.find(user.user_id)
        assert score is not None
        await self.leaderboard.put(score)
        return score

    async def add(
        self, user: User, points: int, moment: datetime = START, token_hash: str | None = None
    ) -> AppliedScoreChange:
        """Add points in PostgreSQL."""
        return await self.scores.apply(score_change(user, points, moment, token_hash))

    async def set_score(self, score: Score) -> None:
        """Write any score to PostgreSQL without an event."""
        await self.database.value(
            "set_score",
            "UPDATE scores SET total_score = $2, score_first_reached_at = $3, updated_at = $3,"
            " revision = $4 WHERE user_id = $1",
            score.user_id,
            score.score,
            score.reached_at,
            score.revision,
        )


def score_change(
    user: User, points: int, moment: datetime = START, token_hash: str | None = None
) -> ScoreChange:
    token_hash = token_hash or new_uuid().replace("-", "") * 2
    return ScoreChange(
        token_hash,
        f"action-{token_hash[:8]}",
        user.user_id,
        points,
        moment + timedelta(minutes=5),
        moment,
    )
