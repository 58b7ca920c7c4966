"""Time as a parameter: code that reads the time or waits receives a `Clock`.

The program uses `SystemClock`. Tests use `ManualClock`, which moves only when they advance it: a
test of an hour takes no time and does not depend on the load of the machine.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol, TypeVar

T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A source of time; implementations provide `time_ns`, `monotonic` and `sleep`."""

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch. May jump."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, for durations. Never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""

    def seconds(self) -> int:
        """Whole seconds since the Unix epoch, as in TTL attributes."""
        return self.time_ns() // 1_000_000_000

    def milliseconds(self) -> int:
        """Whole milliseconds since the Unix epoch, as in readings."""
        return self.time_ns() // 1_000_000

    def now(self) -> datetime:
        """The current time as an aware UTC datetime with microseconds."""
        return EPOCH + timedelta(microseconds=self.time_ns() // 1000)


class SystemClock(Clock):
    """The clock of the machine."""

    def time_ns(self) -> int:
        return time.time_ns()

    # The function itself: a request calls it a dozen times.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock(Clock):
    """A clock that tests move with `advance`; sleepers wake in the order of their deadlines."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start_ns = round((start - EPOCH) / timedelta(microseconds=1)) * 1000
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._slept = asyncio.Event()

    def time_ns(self) -> int:
        return self._start_ns + round(self._elapsed * 1_000_000) * 1000

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        self._slept.set()
        await woken

    @property
    def sleeping(self) -> int:
        """The number of current sleepers."""
        return sum(1 for *_, woken in self._sleepers if not woken.done())

    def next_due(self) -> float | None:
        """Return the `monotonic` time of the next wake-up, or None without sleepers."""
        return min((due for due, _, woken in self._sleepers if not woken.done()), default=None)

    async def until_sleeping(self, count: int = 1) -> None:
        """Wait for `count` sleepers, for example until a loop has finished an iteration."""
        while self.sleeping < count:
            self._slept.clear()
            await self._slept.wait()

    async def advance(self, seconds: float) -> None:
        """Advance the time by `seconds`.

        Each due sleeper wakes at its own deadline and may sleep again before the next one wakes.
        """
        target = self._elapsed + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, woken = heapq.heappop(self._sleepers)
            if woken.done():
                continue
            self._elapsed = max(self._elapsed, due)
            woken.set_result(None)
            await self._settle()
        self._elapsed = target

    async def _settle(self) -> None:
        """Run the tasks that are ready; for I/O and threads, use `until_sleeping`."""
        for _ in range(20):
            await asyncio.sleep(0)


class DeadlineExceeded(TimeoutError):
    """Work was cancelled because it exceeded its deadline."""


async def finish_within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Return the result of `work`, or cancel it after `seconds` and raise DeadlineExceeded."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise DeadlineExceeded(f"not finished within {seconds:g} s")
        return task.result()
    finally:
        timer.cancel()
        task.cancel()
        await asyncio.wait({task, timer})


@lru_cache(maxsize=16)
def rfc3339_seconds(seconds: int) -> str:
    """Format seconds since the Unix epoch; cached, because many requests arrive in one second."""
    return rfc3339(EPOCH + timedelta(seconds=seconds))


def rfc3339(moment: datetime) -> str:
    """Format as `2026-01-31T09:30:00Z`: whole seconds, UTC, sortable as text."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
