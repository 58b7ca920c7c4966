"""An engine in front of a real one, whose transactions go where a test sends them."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from tally.store.api import Engine, Transaction, TransactionResult
from tally.store.errors import StoreError

TransactEach: TypeAlias = Callable[
    [Sequence[Transaction]], Coroutine[Any, Any, list[TransactionResult | StoreError]]
]


class Faulty:
    """Everything goes to the engine behind, but many transactions at once, which the test answers."""

    def __init__(self, behind: Engine, transact_each: TransactEach) -> None:
        self._behind = behind
        self.transact_each = transact_each

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)
