"""An engine in front of a real one, which fails where a test says so: before a write, or after it with the answer lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from tally.store.api import Engine, Transacted, Transaction
from tally.store.errors import StoreError

Transact: TypeAlias = Callable[[Transaction], Awaitable[Transacted]]


class Faulty:
    """Everything goes to the engine behind, but transactions, which go where the test sends them."""

    def __init__(self, behind: Engine, transact: Transact) -> None:
        self._behind = behind
        self._transact = transact

    async def transact(self, operation: Transaction) -> Transacted:
        return await self._transact(operation)

    async def transact_each(self, operations: Sequence[Transaction]) -> list[Transacted | StoreError]:
        answers = await asyncio.gather(*(self._transact(operation) for operation in operations), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, StoreError):
                raise answer
        return [answer for answer in answers if isinstance(answer, Transacted | StoreError)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)
