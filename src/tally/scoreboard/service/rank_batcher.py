"""Rank queries against PostgreSQL, batched, for the time that Redis is unavailable.

PostgreSQL counts the players ahead. With a million players one rank takes 50 ms on average, and a
batch of any size about 250 ms. Each process runs one query at a time; requests that arrive
meanwhile share the next one, so none waits for more than two.
"""

import asyncio
from collections.abc import Mapping, Sequence

from tally.scoreboard.model import Standing
from tally.scoreboard.repository.scores import ScoreRepository


class RankBatcher:
    """Finds standings in PostgreSQL, one batch at a time."""

    def __init__(self, scores: ScoreRepository) -> None:
        self._scores = scores
        self._pending: dict[str, asyncio.Future[tuple[Standing, int] | None]] = {}
        self._worker: asyncio.Task[None] | None = None

    async def standing(self, user_id: str) -> tuple[Standing, int] | None:
        """Return the standing and the number of players, from a query started after this call."""
        result = self._pending.get(user_id)
        if result is None:
            result = self._pending[user_id] = asyncio.get_running_loop().create_future()
        if self._worker is None:
            self._worker = asyncio.create_task(self._run())
        # Other requests may await the same future, so a cancelled one must not cancel it.
        return await asyncio.shield(result)

    async def _run(self) -> None:
        try:
            while self._pending:
                batch, self._pending = self._pending, {}
                await self._resolve(batch)
        finally:
            self._worker = None

    async def _resolve(self, batch: dict[str, asyncio.Future[tuple[Standing, int] | None]]) -> None:
        try:
            standings = await self._query(list(batch))
        except Exception as error:  # noqa: BLE001  (every waiting request raises it)
            for result in batch.values():
                result.set_exception(error)
                result.exception()  # marks it as retrieved, in case no request waits any more
        else:
            for user_id, result in batch.items():
                result.set_result(standings.get(user_id))

    async def _query(self, user_ids: Sequence[str]) -> Mapping[str, tuple[Standing, int] | None]:
        """Scan all scores once, or use the cheaper query for a single player."""
        if len(user_ids) > 1:
            return await self._scores.standings(user_ids)
        return {user_id: await self._scores.standing(user_id) for user_id in user_ids}
