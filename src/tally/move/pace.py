"""How fast a move copies: items per second over all tables, and concurrent requests."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from tally.kit.clock import Clock

MAX_CONCURRENT_WRITES: Final = 8


class Pace:
    """Delays the copy to `rate` items per second; None copies as fast as the stores allow.

    The rate does not limit the changes that follow, which must keep up with the servers.
    """

    def __init__(self, clock: Clock, rate: float | None) -> None:
        self.clock = clock
        self._rate = rate
        self._free_at = clock.monotonic()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

    async def take(self, items: int) -> None:
        """Wait until these items may be copied."""
        if self._rate is None:
            return
        now = self.clock.monotonic()
        wait = self._free_at - now
        self._free_at = max(now, self._free_at) + items / self._rate
        if wait > 0:
            await self.clock.sleep(wait)

    async def run_all(self, requests: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run requests concurrently, as far as those of other tables leave room."""

        async def run(request: Coroutine[Any, Any, None]) -> None:
            async with self._slots:
                await request

        try:
            async with asyncio.TaskGroup() as group:
                for request in requests:
                    group.create_task(run(request))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
