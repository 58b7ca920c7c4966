"""The same operations through an engine: the embedded one, or DynamoDB Local."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from bench.raw import READINGS, READINGS_PER_BOARD, board_name, make_item
from tally.store.api import Engine, Get, Put, Query, Transaction, Update
from tally.store.expressions import F


class Workload:
    """Operations on random existing keys by one or many concurrent clients."""

    def __init__(self, engine: Engine, boards: int, seed: int = 2) -> None:
        self._engine = engine
        self._boards = boards
        self._random = Random(seed)

    async def fill(self) -> None:
        """Put all boards with their readings through the engine."""
        keys = (
            (board_name(board), f"{at:03}")
            for board in range(self._boards)
            for at in range(READINGS_PER_BOARD)
        )
        for board, at in keys:
            await self._engine.put(Put(READINGS, make_item(board, at)))

    async def puts(self, clients: int, per_client: int) -> int:
        return await self._run_clients(self._put, clients, per_client)

    async def gets(self, clients: int, per_client: int) -> int:
        return await self._run_clients(self._get, clients, per_client)

    async def queries(self, clients: int, per_client: int) -> int:
        return await self._run_clients(self._query, clients, per_client)

    async def updates(self, clients: int, per_client: int) -> int:
        return await self._run_clients(self._update, clients, per_client)

    async def transactions(self, clients: int, per_client: int) -> int:
        return await self._run_clients(self._transact, clients, per_client)

    async def _run_clients(
        self, operation: Callable[[], Awaitable[object]], clients: int, per_client: int
    ) -> int:
        async def client() -> None:
            for _ in range(per_client):
                await operation()

        if clients == 1:
            await client()
        else:
            await asyncio.gather(*(client() for _ in range(clients)))
        return clients * per_client

    def _key(self) -> dict[str, str]:
        return {
            "board": board_name(self._random.randrange(self._boards)),
            "at": f"{self._random.randrange(READINGS_PER_BOARD):03}",
        }

    async def _put(self) -> None:
        await self._engine.put(Put(READINGS, make_item(**self._key())))

    async def _get(self) -> None:
        await self._engine.get(Get(READINGS, self._key()))

    async def _query(self) -> None:
        page = await self._engine.query(
            Query(READINGS, F("board") == self._key()["board"], limit=READINGS_PER_BOARD)
        )
        if len(page.items) != READINGS_PER_BOARD:
            raise AssertionError(
                f"a query for {READINGS_PER_BOARD} items returned {len(page.items)}"
            )

    async def _update(self) -> None:
        actions = (F("sequence").set(F("sequence") + 1),)
        await self._engine.update(Update(READINGS, self._key(), actions, condition=F("ok") == True))  # noqa: E712 - a condition

    async def _transact(self) -> None:
        board, other = self._random.sample(range(self._boards), 2)
        pair = (
            make_item(board_name(number), f"{self._random.randrange(READINGS_PER_BOARD):03}")
            for number in (board, other)
        )
        await self._engine.transact(
            Transaction(tuple(Put(READINGS, item, condition=F("board").exists()) for item in pair))
        )
