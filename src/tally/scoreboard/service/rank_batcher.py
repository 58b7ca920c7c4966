"""Ranks without Redis: PostgreSQL counts the players ahead, which takes a while, so those who ask meanwhile share the next count.

With a million players one rank takes 50 ms of PostgreSQL on average, and all the ranks of a moment
250 ms together. However many ask, PostgreSQL counts once at a time for each process, and nobody
waits for longer than two counts.
"""

import asyncio
from collections.abc import Mapping, Sequence

from tally.scoreboard.model import Standing
from tally.scoreboard.repository.scores import ScoreRepository


class RankBatcher:
    """Finds players' places on the board in PostgreSQL."""

    def __init__(self, scores: ScoreRepository) -> None:
        self._scores = scores
        self._waiting: dict[str, asyncio.Future[tuple[Standing, int] | None]] = {}
        self._counting: asyncio.Task[None] | None = None

    async def place(self, user_id: str) -> tuple[Standing, int] | None:
        """The player's standing and how many players there are, as of a count that began after this was called."""
        place = self._waiting.get(user_id)
        if place is None:
            place = self._waiting[user_id] = asyncio.get_running_loop().create_future()
        if self._counting is None:
            self._counting = asyncio.create_task(self._count())
        # Others may wait for the same player, and one who gives up must not take it from them.
        return await asyncio.shield(place)

    async def _count(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                await self._answer(asked)
        finally:
            self._counting = None

    async def _answer(self, asked: dict[str, asyncio.Future[tuple[Standing, int] | None]]) -> None:
        try:
            found = await self._places(list(asked))
        except Exception as error:  # noqa: BLE001  (each of those who wait raises it)
            for place in asked.values():
                place.set_exception(error)
                place.exception()  # heard, also where nobody waits any more
        else:
            for user_id, place in asked.items():
                place.set_result(found.get(user_id))

    async def _places(self, user_ids: Sequence[str]) -> Mapping[str, tuple[Standing, int] | None]:
        """A walk for all of them, or the shorter one where there is but one."""
        if len(user_ids) > 1:
            return await self._scores.places(user_ids)
        return {user_id: await self._scores.place(user_id) for user_id in user_ids}
