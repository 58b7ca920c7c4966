"""Rebuilds the leaderboard in Redis from PostgreSQL, online.

A rebuild marker in Redis makes every change apply to the new leaderboard as well. Once it is set,
PostgreSQL is read in one snapshot: changes committed before it are in the snapshot, later ones are
written by their process. A lower score never replaces a higher one, so the order of the two does
not matter. At the end one script swaps the leaderboards. The marker and the partial leaderboard
expire if the rebuild is abandoned.
"""

import asyncio
from typing import Final

from tally.kit.ids import new_uuid
from tally.scoreboard.model.errors import CacheUnavailable, RebuildInProgress
from tally.scoreboard.model.scores import to_microseconds
from tally.scoreboard.repository.database import Row
from tally.scoreboard.repository.leaderboard import LEADERBOARD, leaderboard_keys
from tally.scoreboard.repository.ranked_scores import RankedScores
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scripts import ABANDON, LOAD, SWAP

PAGE_SIZE: Final = 500
MARKER_TTL_SECONDS: Final = 60


class LeaderboardRebuilder:
    """Rebuilds a leaderboard in `redis` from `scores`; `name` is that of its sorted set."""

    def __init__(
        self, redis: InstrumentedRedis, scores: RankedScores, name: str = LEADERBOARD
    ) -> None:
        self._name = name
        self._keys = leaderboard_keys(name)
        self._marker = self._keys[3]
        self._redis = redis
        self._scores = scores
        self._load_script = redis.script(LOAD)
        self._swap_script = redis.script(SWAP)
        self._abandon_script = redis.script(ABANDON)

    async def rebuild(self) -> int:
        """Return the number of players in the new leaderboard.

        Raises RebuildInProgress, or CacheUnavailable if Redis lost the partial leaderboard.
        """
        new = f"{self._name}:new:{new_uuid()}"
        async with self._redis.use("rebuild_begin") as client:
            if not await client.set(self._marker, new, nx=True, ex=MARKER_TTL_SECONDS):
                raise RebuildInProgress("A rebuild is already in progress")
        try:
            changed_at = await self._scores.last_change()
            await self._load_all(new)
            moment = 0 if changed_at is None else to_microseconds(changed_at)
            count: int = await self._redis.run(
                "rebuild_swap", self._swap_script, self._keys, (new_uuid(), new, moment)
            )
        except BaseException:
            await asyncio.shield(self._abandon(new))
            raise
        if count < 0:
            raise _marker_lost()
        return count

    async def _load_all(self, new: str) -> None:
        """Load all pages; read the next from PostgreSQL while Redis loads the previous one."""
        loading: asyncio.Task[None] | None = None
        try:
            async for page in self._scores.entries(PAGE_SIZE):
                if loading is not None:
                    await loading
                loading = asyncio.create_task(self._load(new, page))
            if loading is not None:
                await loading
        finally:
            if loading is not None and not loading.done():
                loading.cancel()
                await asyncio.wait({loading})

    async def _load(self, new: str, page: list[Row]) -> None:
        arguments: list[str | bytes | int] = [new, MARKER_TTL_SECONDS]
        for row in page:
            arguments += row
        if not await self._redis.run("rebuild_load", self._load_script, (self._marker,), arguments):
            raise _marker_lost()

    async def _abandon(self, new: str) -> None:
        try:
            await self._redis.run("rebuild_abandon", self._abandon_script, (self._marker,), (new,))
        except CacheUnavailable:
            return  # the marker is lost with Redis, or expires


def _marker_lost() -> CacheUnavailable:
    return CacheUnavailable("Redis lost the leaderboard during the rebuild", retry_after=1)
