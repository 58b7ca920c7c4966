"""Generates load at a constant rate or at full speed, and measures the latency of each request."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from msgspec import Struct

Send: TypeAlias = Callable[[Any], Awaitable[object]]
# More requests than this are never in flight, and an overloaded run ends after three times its
# planned duration.
MAX_IN_FLIGHT = 256
_MAX_OVERRUN = 3


class RequestsFailed(Exception):
    """Requests of a load failed, so that its figures are worthless."""


class Load(Struct, frozen=True):
    """The result of a run: requests, duration in seconds, and sorted latencies."""

    count: int
    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    def quantile(self, share: float) -> float:
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]

    def meets(self, per_second: float, max_seconds: float) -> bool:
        """Return whether the rate was reached with a p99 below `max_seconds`."""
        return self.rate >= 0.98 * per_second and self.quantile(0.99) < max_seconds

    def describe(self, batch_size: int = 1) -> str:
        """Return the rate and quantiles as text; a request carries `batch_size` items."""
        p50, p99 = self.quantile(0.5) * 1000, self.quantile(0.99) * 1000
        return f"{self.rate * batch_size:,.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def merge_loads(loads: Sequence[Load]) -> Load:
    """Combine several runs."""
    latencies = sorted(latency for load in loads for latency in load.latencies)
    return Load(sum(load.count for load in loads), sum(load.seconds for load in loads), latencies)


@contextmanager
def _without_gc() -> Iterator[None]:
    """Disable garbage collection: a pause of this process would look like server latency."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def at_rate(send: Send, work: Sequence[Any], per_second: float) -> Load:
    """Send each request at its due time, and measure the latency from then (open loop)."""
    with _without_gc():
        return await _at_rate(send, work, per_second)


async def _at_rate(send: Send, work: Sequence[Any], per_second: float) -> Load:
    requests = _CountedRequests(send)
    running: set[asyncio.Task[None]] = set()
    started = time.perf_counter()

    for number, content in enumerate(work):
        due = started + number / per_second
        wait = due - time.perf_counter()
        if -wait > _MAX_OVERRUN * len(work) / per_second:
            break
        if wait > 0:
            await asyncio.sleep(wait)
        while len(running) >= MAX_IN_FLIGHT:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(requests.send(content, due))
        running.add(task)
        task.add_done_callback(running.discard)
    while running:
        await asyncio.gather(*running)
    return requests.load(time.perf_counter() - started)


async def at_full_speed(send: Send, work: Sequence[Any], clients: int) -> Load:
    """Send with `clients` clients, each one request at a time (closed loop)."""
    remaining: Iterator[Any] = iter(work)
    requests = _CountedRequests(send)
    started = time.perf_counter()

    async def client() -> None:
        for content in remaining:
            await requests.send(content, time.perf_counter())

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return requests.load(time.perf_counter() - started)


class _CountedRequests:
    """Measures each request, and counts the failed ones instead of losing their exceptions."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._latencies: list[float] = []
        self._errors: list[Exception] = []

    async def send(self, content: Any, due: float) -> None:
        try:
            await self._send(content)
        except Exception as error:  # noqa: BLE001  (every failure counts; `load` raises it)
            self._errors.append(error)
        else:
            self._latencies.append(time.perf_counter() - due)

    def load(self, seconds: float) -> Load:
        """Return the result, or raise RequestsFailed if any request failed."""
        count = len(self._latencies)
        if self._errors:
            failed, first = len(self._errors), self._errors[0]
            raise RequestsFailed(
                f"{failed} of {failed + count} requests failed, the first with"
                f" {type(first).__name__}: {first}"
            ) from first
        return Load(count, seconds, sorted(self._latencies))
