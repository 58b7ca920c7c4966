"""Wrap a real engine: one stops answering at a chosen write, one runs a callback in between."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tally.store.api import Engine

WRITES: Final = frozenset({"put", "update", "delete", "batch_write", "transact"})


class EngineCrashed(BaseException):
    """The process is gone; as a BaseException, it passes all error handlers."""


class CrashingEngine:
    """Passes `writes` writes through, and crashes before or after the next one.

    After the crash every operation fails. Without `writes` it crashes only by `crash`.
    """

    def __init__(self, engine: Engine, writes: int | None = None, *, after: bool = False) -> None:
        self._engine = engine
        self._remaining = writes
        self._after = after
        self.has_crashed = False

    def crash(self) -> None:
        self.has_crashed = True

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._engine, name)
        if not callable(operation):
            return operation

        async def call(*args: Any) -> Any:
            if self.has_crashed:
                raise EngineCrashed
            if name not in WRITES or self._remaining is None or self._remaining > 0:
                if name in WRITES and self._remaining is not None:
                    self._remaining -= 1
                return await operation(*args)
            self.has_crashed = True
            if self._after:
                await operation(*args)
            raise EngineCrashed

        return call


class InterleavingEngine:
    """Runs `meanwhile` after each operation `after`, before its caller gets the result."""

    def __init__(
        self, engine: Engine, after: str, meanwhile: Callable[[], Awaitable[None]]
    ) -> None:
        self._engine = engine
        self._after = after
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._engine, name)
        if name != self._after:
            return operation

        async def call(*args: Any) -> Any:
            result = await operation(*args)
            await self._meanwhile()
            return result

        return call
