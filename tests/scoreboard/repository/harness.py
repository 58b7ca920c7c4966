"""All repositories on one database and one Redis, and short ways to have players and points in them."""

import itertools
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tally.kit.clock import SystemClock
from tally.kit.ids import new_uuid
from tally.scoreboard.model import AppliedScoreChange, NewUser, Score, ScoreChange, User
from tally.scoreboard.repository.accounts import AccountRepository
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.repository.database import Database
from tally.scoreboard.repository.drift import DriftChecker
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.rebuild import LeaderboardRebuilder
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.repository.sessions import PlayerSessionRepository

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
_numbers = itertools.count(1)


def at(seconds: float) -> datetime:
    """A moment so many seconds after the start."""
    return START + timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Repositories:
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
    def leaderboard(self) -> LeaderboardCache:
        return LeaderboardCache(self.redis)

    @property
    def rebuilder(self) -> LeaderboardRebuilder:
        return LeaderboardRebuilder(self.redis, self.scores)

    @property
    def drift_checker(self) -> DriftChecker:
        return DriftChecker(self.leaderboard, self.scores)

    async def clear(self) -> None:
        """Nobody anywhere, and a board that is whole and empty."""
        async with self.database.use("clear") as connection:
            # To delete is faster than to truncate, as long as there is little.
            for table in ("consumed_tokens", "completed_actions", "score_events", "users"):
                await connection.execute(f"DELETE FROM {table}")  # noqa: S608  (names of our own)
        await self.redis.client.flushdb()
        await self.rebuilder.rebuild()

    async def player(self, user_id: str | None = None, moment: datetime = START) -> User:
        number = next(_numbers)
        made = NewUser(
            user_id or str(uuid.uuid4()), f"player_{number}", f"player{number}@example.org", "hash"
        )
        return await self.accounts.create(made, moment)

    async def write_through(self, user: User) -> Score:
        """The player's score as PostgreSQL has it, put on the board."""
        score = await self.scores.find(user.user_id)
        assert score is not None
        await self.leaderboard.put(score)
        return score

    async def add(
        self, user: User, points: int, moment: datetime = START, token_hash: str | None = None
    ) -> AppliedScoreChange:
        return await self.scores.apply(change(user, points, moment, token_hash))

    async def set_score(self, score: Score) -> None:
        """Write a score of any size, as many points would in the end."""
        await self.database.value(
            "set_score",
            "UPDATE scores SET total_score = $2, score_first_reached_at = $3, updated_at = $3 WHERE user_id = $1",
            score.user_id,
            score.score,
            score.reached_at,
        )


def change(
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
