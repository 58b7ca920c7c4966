"""What the consumers of readings share: a loop under a lock, and a bounded backlog of changes.

A transaction of a consumer costs more than the reading that caused it. Where readings arrive one by
one, a consumer therefore gathers the changes of a quarter of a second for its next transaction.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from itertools import islice
from typing import Final, Generic, TypeVar

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock
from tally.kit.tasks import cancel_all

CONSUMER_LOCK_SECONDS: Final = 5.0
CONSUMER_RETRY_SECONDS: Final = 0.5
MAX_WAITING_CHANGES: Final = 2_000
# From one transaction to the next, unless a whole batch waits or somebody waits for the result.
GATHERING_SECONDS: Final = 0.25

_log = logs.logger()
ChangeT = TypeVar("ChangeT")


class ExclusiveConsumer:
    """Runs a consumer while this instance holds its lock, and again after a failure.

    `title` and `action` are for logs. The consumer sets `is_failing` to False when it works, so
    that the first of several failures is logged.
    """

    def __init__(self, name: str, title: str, action: str, locks: Locks, clock: Clock) -> None:
        self._name = name
        self._title = title
        self._action = action
        self._locks = locks
        self._clock = clock
        self.is_failing = False

    async def run(self, consume: Callable[[], Awaitable[None]]) -> None:
        """Consume until cancelled; wait while another instance does."""
        while True:
            try:
                await run_with_lock(
                    self._locks, self._clock, self._name, CONSUMER_LOCK_SECONDS, consume
                )
            except LockedElsewhere:
                pass
            except LockLost:
                _log.warning(f"{self._title} lost its lock", action=f"{self._action}_lock_lost")
            except Exception as error:  # noqa: BLE001 - tried again
                self._log_failure(error)
            await self._clock.sleep(CONSUMER_RETRY_SECONDS)

    def _log_failure(self, error: Exception) -> None:
        if self.is_failing:
            return
        self.is_failing = True
        if isinstance(error, Unavailable):
            _log.warning(
                f"{self._title} interrupted", action=f"{self._action}_interrupted", error=error
            )
        else:
            _log.exception(f"{self._title} failed", action=f"{self._action}_failed")


class ChangeBacklog(Generic[ChangeT]):
    """Changes that were read and not applied yet; a transaction applies up to `batch_size`."""

    def __init__(self, batch_size: int) -> None:
        self.changes: deque[ChangeT] = deque()
        self._batch_size = batch_size
        self._has_changes = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_due = asyncio.Event()
        self._taken_at = float("-inf")

    async def fill(self, reading: AsyncGenerator[ChangeT, None]) -> None:
        """Read changes until cancelled; pause while too many wait."""
        async with aclosing(reading) as found:
            async for change in found:
                self.changes.append(change)
                self._has_changes.set()
                if len(self.changes) >= self._batch_size:
                    self._is_due.set()
                if len(self.changes) >= MAX_WAITING_CHANGES:
                    self._has_room.clear()
                    await self._has_room.wait()

    def next_batch(self) -> list[ChangeT]:
        """Return the changes that one transaction may apply."""
        return [*islice(self.changes, self._batch_size)]

    def take(self, count: int) -> None:
        """Remove the oldest changes, which were applied."""
        for _ in range(count):
            self.changes.popleft()
        self._taken_at = asyncio.get_running_loop().time()
        self._has_room.set()
        if not self.changes:
            self._has_changes.clear()
        if len(self.changes) < self._batch_size:
            self._is_due.clear()

    async def wait(self, filling: "asyncio.Task[None]", seconds: float) -> None:
        """Wait for a change, at most `seconds`; raises the error of the task that fills this."""
        if not self.changes:
            await _wait_for(self._has_changes, filling, seconds)
        if filling.done():
            filling.result()

    async def gather(self, filling: "asyncio.Task[None]") -> None:
        """Wait until the next transaction is due: at once after a quiet time."""
        seconds = self._taken_at + GATHERING_SECONDS - asyncio.get_running_loop().time()
        if seconds > 0 and not self._is_due.is_set():
            await _wait_for(self._is_due, filling, seconds)

    def hurry(self) -> None:
        """Do not gather before the next transaction."""
        self._is_due.set()


async def _wait_for(event: asyncio.Event, filling: "asyncio.Task[None]", seconds: float) -> None:
    """Wait for an event or the end of the task, at most `seconds`."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, filling}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all({waiting})
