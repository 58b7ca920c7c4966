"""Building the board in Redis from PostgreSQL, while it is read and changed.

First the mark of a rebuild is set, and from then on every change is made to the new board as well.
Only then PostgreSQL is read, as it is at one moment: what was committed before is read, what is
committed later is put by whoever committed it. Loading follows the rule of every write, that a
smaller score is old news, so the order in which the two arrive does not matter. At the end the new
board takes the place of the old one in one step. A mark that nobody tends goes away by itself, with
the half-built board.
"""

import asyncio
from typing import Final

from tally.kit.ids import new_uuid
from tally.scoreboard.model import CacheUnavailable, RebuildInProgress, to_microseconds
from tally.scoreboard.repository.database import Row
from tally.scoreboard.repository.leaderboard import BOARD, KEYS, REBUILDING
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.repository.scripts import ABANDON, LOAD, SWAP

PAGE: Final = 500
IDLE_SECONDS: Final = 60


class LeaderboardRebuilder:
    """Rebuilds the board of `server` from `scores`."""

    def __init__(self, server: InstrumentedRedis, scores: ScoreRepository) -> None:
        self._server = server
        self._scores = scores
        self._load_script = server.script(LOAD)
        self._swap_script = server.script(SWAP)
        self._abandon_script = server.script(ABANDON)

    async def rebuild(self) -> int:
        """How many players the new board has.

        RebuildInProgress if somebody else is at it, CacheUnavailable if Redis lost it halfway.
        """
        new = f"{BOARD}:new:{new_uuid()}"
        async with self._server.use("rebuild_begin") as client:
            if not await client.set(REBUILDING, new, nx=True, ex=IDLE_SECONDS):
                raise RebuildInProgress("The board is being rebuilt already")
        try:
            changed_at = await self._scores.last_change()
            await self._load_all(new)
            moment = 0 if changed_at is None else to_microseconds(changed_at)
            count: int = await self._server.run(
                "rebuild_swap", self._swap_script, KEYS, (new, moment)
            )
        except BaseException:
            await asyncio.shield(self._abandon(new))
            raise
        if count < 0:
            raise _lost()
        return count

    async def _load_all(self, new: str) -> None:
        """Load page after page; PostgreSQL is asked for the next while Redis takes in the last."""
        loading: asyncio.Task[None] | None = None
        try:
            async for page in self._scores.entries(PAGE):
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
        arguments: list[str | bytes | int] = [new, IDLE_SECONDS]
        for row in page:
            arguments += row
        if not await self._server.run("rebuild_load", self._load_script, (REBUILDING,), arguments):
            raise _lost()

    async def _abandon(self, new: str) -> None:
        try:
            await self._server.run("rebuild_abandon", self._abandon_script, (REBUILDING,), (new,))
        except CacheUnavailable:
            return  # then the mark is gone with Redis, or goes away by itself


def _lost() -> CacheUnavailable:
    return CacheUnavailable("Redis forgot the board while it was built", retry_after=1)
