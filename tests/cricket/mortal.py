"""An engine that dies at a chosen write, as the process would with it."""

from typing import Any, Final

from tally.store.api import Engine

WRITES: Final = frozenset({"put", "update", "delete", "batch_write", "transact"})


class Died(BaseException):
    """The process is gone: no handler of errors runs, nothing is given back."""


class Mortal:
    """Lets so many writes through, and dies before or after the next one; from then on nothing is answered."""

    def __init__(self, engine: Engine, writes: int | None = None, *, after: bool = False) -> None:
        self._engine = engine
        self._left = writes
        self._after = after
        self.is_dead = False

    def die(self) -> None:
        self.is_dead = True

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._engine, name)
        if not callable(operation):
            return operation

        async def call(*args: Any) -> Any:
            if self.is_dead:
                raise Died
            if name not in WRITES or self._left is None or self._left > 0:
                if name in WRITES and self._left is not None:
                    self._left -= 1
                return await operation(*args)
            self.is_dead = True
            if self._after:
                await operation(*args)
            raise Died

        return call
