"""Looking at the board: its top, the stretch around a player, and a player's own rank; from Redis, or from PostgreSQL without it.

While this process still owes Redis something, PostgreSQL is asked, so that a player sees the points
that were just answered.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tally.errors import NotFound
from tally.scoreboard.model import LeaderboardPage, Standing
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.rank_batcher import RankBatcher
from tally.scoreboard.service.redis_breaker import RedisBreaker

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Reads the board."""

    board: LeaderboardCache
    scores: ScoreRepository
    ranks: RankBatcher
    guard: RedisBreaker
    backlog: Backlog

    async def top(self, limit: int, offset: int = 0) -> LeaderboardPage:
        """A stretch of the board, from the rank `offset` + 1 on."""
        return await self._read(
            lambda: self.board.top(limit, offset), lambda: self.scores.top(limit, offset)
        )

    async def around(self, user_id: str, limit: int) -> LeaderboardPage:
        """A stretch of the board with the player in its middle."""
        found = await self._read(
            lambda: self.board.around(user_id, limit), lambda: self.scores.around(user_id, limit)
        )
        # One who signed up a moment ago may not be in Redis yet, and is in PostgreSQL for certain.
        found = found or await self.scores.around(user_id, limit)
        if found is None:
            raise _nobody()
        return found

    async def place(self, user_id: str) -> tuple[Standing, int]:
        """The player's standing, and how many players there are."""
        found = await self._read(
            lambda: self.board.place(user_id), lambda: self.ranks.place(user_id)
        )
        found = found or await self.ranks.place(user_id)
        if found is None:
            raise _nobody()
        return found

    async def _read(
        self, in_redis: Callable[[], Awaitable[T]], in_postgresql: Callable[[], Awaitable[T]]
    ) -> T:
        if self.backlog.has_pending_changes():
            return await in_postgresql()
        return await self.guard.ask(in_redis, otherwise=in_postgresql)


def _nobody() -> NotFound:
    return NotFound("No such user", code="user_not_found")
