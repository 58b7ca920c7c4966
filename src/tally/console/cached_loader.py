"""Caches the result of an async query for all open pages: many viewers cost no more than one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tally.kit.clock import Clock
from tally.kit.tasks import cancel_all

T = TypeVar("T")


class CachedLoader(Generic[T]):
    """Runs `load` on demand, at most once per `seconds`, and shares the result."""

    def __init__(self, clock: Clock, seconds: float, load: Callable[[], Awaitable[T]]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._load = load
        self._task: asyncio.Task[T] | None = None
        self._started_at = 0.0

    async def get(self) -> T:
        """Return the cached result, or wait for the load in progress.

        A caller that is cancelled does not cancel the load for the others.
        """
        now = self._clock.monotonic()
        if self._task is None or (self._task.done() and now - self._started_at >= self._seconds):
            self._started_at = now
            self._task = asyncio.ensure_future(self._load())
        return await asyncio.shield(self._task)

    async def close(self) -> None:
        if self._task is not None:
            await cancel_all([self._task])
