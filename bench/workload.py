"""The same work through an engine: the one that runs here, or DynamoDB Local's."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from bench.raw import PER_BOARD, READINGS, board_name, make_item
from tally.store.api import Engine, Get, Put, Query, Transaction, Update
from tally.store.expressions import F


class Workload:
    """Operations on random keys that are there, alone or by many at once."""

    def __init__(self, engine: Engine, boards: int, seed: int = 2) -> None:
        self._engine = engine
        self._boards = boards
        self._random = Random(seed)

    async def fill(self) -> None:
        """All boards with their readings, through the engine."""
        keys = (
            (board_name(board), f"{at:03}")
            for board in range(self._boards)
            for at in range(PER_BOARD)
        )
        for board, at in keys:
            await self._engine.put(Put(READINGS, make_item(board, at)))

    async def puts(self, clients: int, each: int) -> int:
        return await self._together(self._put, clients, each)

    async def gets(self, clients: int, each: int) -> int:
        return await self._together(self._get, clients, each)

    async def queries(self, clients: int, each: int) -> int:
        return await self._together(self._query, clients, each)

    async def updates(self, clients: int, each: int) -> int:
        return await self._together(self._update, clients, each)

    async def transactions(self, clients: int, each: int) -> int:
        return await self._together(self._transact, clients, each)

    async def _together(
        self, operation: Callable[[], Awaitable[object]], clients: int, each: int
    ) -> int:
        async def client() -> None:
            for _ in range(each):
                await operation()

        if clients == 1:
            await client()
        else:
            await asyncio.gather(*(client() for _ in range(clients)))
        return clients * each

    def _key(self) -> dict[str, str]:
        return {
            "board": board_name(self._random.randrange(self._boards)),
            "at": f"{self._random.randrange(PER_BOARD):03}",
        }

    async def _put(self) -> None:
        await self._engine.put(Put(READINGS, make_item(**self._key())))

    async def _get(self) -> None:
        await self._engine.get(Get(READINGS, self._key()))

    async def _query(self) -> None:
        page = await self._engine.query(
            Query(READINGS, F("board") == self._key()["board"], limit=PER_BOARD)
        )
        if len(page.items) != PER_BOARD:
            raise AssertionError(f"a query of {PER_BOARD} found {len(page.items)}")

    async def _update(self) -> None:
        steps = (F("sequence").set(F("sequence") + 1),)
        await self._engine.update(Update(READINGS, self._key(), steps, condition=F("ok") == True))  # noqa: E712 - a condition

    async def _transact(self) -> None:
        board, other = self._random.sample(range(self._boards), 2)
        pair = (
            make_item(board_name(each), f"{self._random.randrange(PER_BOARD):03}")
            for each in (board, other)
        )
        await self._engine.transact(
            Transaction(tuple(Put(READINGS, item, condition=F("board").exists()) for item in pair))
        )
