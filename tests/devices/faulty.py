"""An engine in front of a real one, which fails where a test says so: before a write, or after it with the answer lost."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from tally.store.api import Engine, Transacted, Transaction

Transact: TypeAlias = Callable[[Transaction], Awaitable[Transacted]]


class Faulty:
    """Everything goes to the engine behind, but transactions, which go where the test sends them."""

    def __init__(self, behind: Engine, transact: Transact) -> None:
        self._behind = behind
        self._transact = transact

    async def transact(self, operation: Transaction) -> Transacted:
        return await self._transact(operation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)
