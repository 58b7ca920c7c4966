"""Time as a parameter: whoever needs to know the time, or to wait, is given a `Clock`.

The program runs on `SystemClock`. Tests run on `ManualClock`, which stands still until they move
it, so that a test of an hour takes no time and never depends on how busy the machine is.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Three things an implementation brings, and the forms of the time that the backends store."""

    def time_ns(self) -> int:
        """Nanoseconds since 1970, UTC: what a calendar says. It may jump."""

    def monotonic(self) -> float:
        """Seconds since some moment: for durations. It never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return when that much time has passed."""

    def seconds(self) -> int:
        """Whole seconds since 1970, as TTL attributes hold them."""
        return self.time_ns() // 1_000_000_000

    def milliseconds(self) -> int:
        """Whole milliseconds since 1970, as readings hold them."""
        return self.time_ns() // 1_000_000

    def now(self) -> datetime:
        """The moment as an aware datetime in UTC, exact to the microsecond."""
        return EPOCH + timedelta(microseconds=self.time_ns() // 1000)


class SystemClock(Clock):
    """The machine's time."""

    def time_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock(Clock):
    """A clock that a test moves by `advance`; sleepers wake in the order of their times."""

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
        """How many are asleep now."""
        return sum(1 for *_, woken in self._sleepers if not woken.done())

    def next_due(self) -> float | None:
        """When the next one wakes, by `monotonic`; None where nobody is asleep."""
        return min((due for due, _, woken in self._sleepers if not woken.done()), default=None)

    async def until_sleeping(self, count: int = 1) -> None:
        """Wait until `count` are asleep, which is how a test knows that a loop has come round."""
        while self.sleeping < count:
            self._slept.clear()
            await self._slept.wait()

    async def advance(self, seconds: float) -> None:
        """Move on.

        Each sleeper on the way is woken at its own time, and may sleep again, before the next one
        is.
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
        """Let the tasks that can run do so; one that waits for a socket or a thread is for `until_sleeping`."""
        for _ in range(20):
            await asyncio.sleep(0)


class DeadlineExceeded(TimeoutError):
    """Work was cancelled because its time was over."""


async def finish_within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`, or DeadlineExceeded after `seconds` on `clock`; by then `work` has been cancelled."""
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


def rfc3339(moment: datetime) -> str:
    """`2026-01-31T09:30:00Z`: whole seconds, UTC, in an order that is the order of time."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
