"""One look for all who want to see the same: many open pages cost the program no more than one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tally.kit.clock import Clock
from tally.kit.tasks import cancel_all

T = TypeVar("T")


class CachedLoader(Generic[T]):
    """What `look` finds, looked for when somebody asks, and at most every so many seconds."""

    def __init__(self, clock: Clock, seconds: float, look: Callable[[], Awaitable[T]]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._look = look
        self._looking: asyncio.Task[T] | None = None
        self._begun = 0.0

    async def get(self) -> T:
        """What was found last; whoever comes while one is looking waits for the same, and may leave without ending it."""
        now = self._clock.monotonic()
        if self._looking is None or (self._looking.done() and now - self._begun >= self._seconds):
            self._begun = now
            self._looking = asyncio.ensure_future(self._look())
        return await asyncio.shield(self._looking)

    async def close(self) -> None:
        if self._looking is not None:
            await cancel_all([self._looking])
