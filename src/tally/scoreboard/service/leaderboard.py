"""Leaderboard reads, from Redis with PostgreSQL as the fallback.

While this process has changes that Redis lacks, reads go to PostgreSQL, so players see the points
that were just acknowledged.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tally.errors import NotFound, TallyError
from tally.scoreboard.model.scores import LeaderboardPage, Standing
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.ranked_scores import RankedScores
from tally.scoreboard.repository.scores import player_banned
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.redis_breaker import RedisBreaker

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Reads pages of the leaderboard and single standings."""

    cache: LeaderboardCache
    scores: RankedScores
    breaker: RedisBreaker
    backlog: Backlog

    def is_served_by_redis(self) -> bool:
        """Return whether Redis has all changes of this process."""
        return not self.backlog.has_pending_changes()

    async def top(self, limit: int, offset: int = 0) -> LeaderboardPage:
        """Return `limit` standings from rank `offset` + 1."""
        return await self._read(
            lambda: self.cache.top(limit, offset), lambda: self.scores.top(limit, offset)
        )

    async def around(self, user_id: str, limit: int) -> LeaderboardPage:
        """Return `limit` standings centred on the player."""
        page = await self._read(
            lambda: self.cache.around(user_id, limit), lambda: self.scores.around(user_id, limit)
        )
        # A new player may not be in Redis yet, but is in PostgreSQL.
        page = page or await self.scores.around(user_id, limit)
        if page is None:
            raise await self._missing(user_id)
        return page

    async def standing(self, user_id: str) -> tuple[Standing, int]:
        """Return the player's standing and the number of players."""
        found = await self._read(
            lambda: self.cache.standing(user_id), lambda: self.scores.standing(user_id)
        )
        found = found or await self.scores.standing(user_id)
        if found is None:
            raise await self._missing(user_id)
        return found

    async def _missing(self, user_id: str) -> TallyError:
        """Return why a player has no rank."""
        if await self.scores.is_banned(user_id):
            return player_banned()
        return NotFound("User does not exist", code="user_not_found")

    async def _read(
        self, from_redis: Callable[[], Awaitable[T]], from_postgresql: Callable[[], Awaitable[T]]
    ) -> T:
        if not self.is_served_by_redis():
            return await from_postgresql()
        return await self.breaker.call_or_else(from_redis, from_postgresql)
