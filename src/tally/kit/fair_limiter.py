"""Limits how many long operations run at a time, and queues the others fairly.

    async with charts.slot(operator.name):
        ...

Waiting owners take turns: an owner with a hundred requests delays another one by one request at
most, and the requests of one owner keep their order.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairLimiter:
    """Grants at most `limit` slots at a time on one event loop."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        # The owner whose turn is next comes first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """The number of operations that wait for a slot."""
        return sum(not granted.done() for queue in self._waiting.values() for granted in queue)

    @asynccontextmanager
    async def slot(self, owner: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it inside the block."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._release()

    async def _wait(self, owner: str) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # the slot was granted before the cancellation arrived
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            owner = next(iter(self._waiting))
            queue = self._waiting.pop(owner)
            granted = queue.popleft()
            if queue:
                self._waiting[owner] = queue
            if not granted.cancelled():
                granted.set_result(None)
                return
        self._free += 1
