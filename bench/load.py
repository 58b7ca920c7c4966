"""Load at a fixed rate or as fast as it goes, bounded in count and time, and how long each answer took."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from msgspec import Struct

Send: TypeAlias = Callable[[Any], Awaitable[object]]
# A server that has fallen this far behind gets no more at once, and no more at all after three
# times the time.
MAX_UNDER_WAY = 256
_PATIENCE = 3


class Load(Struct, frozen=True):
    """What was measured: how many were answered in how many seconds, and each answer's seconds, sorted."""

    count: int
    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    def quantile(self, share: float) -> float:
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]

    def holds(self, per_second: float, most: float) -> bool:
        """Whether so many a second were answered, 99 of 100 within `most` seconds."""
        return self.rate >= 0.98 * per_second and self.quantile(0.99) < most

    def told(self, each: int = 1) -> str:
        """In words; `each` is how many things one request carries."""
        p50, p99 = self.quantile(0.5) * 1000, self.quantile(0.99) * 1000
        return f"{self.rate * each:,.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def together(loads: Sequence[Load]) -> Load:
    """Several rounds as one."""
    latencies = sorted(latency for load in loads for latency in load.latencies)
    return Load(sum(load.count for load in loads), sum(load.seconds for load in loads), latencies)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """What this process throws away is looked for before and after: a pause of its own would be taken for the server's."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def at_rate(send: Send, work: Sequence[Any], per_second: float) -> Load:
    """Send each at its own moment, whether or not those before were answered; late answers count from that moment."""
    with _undisturbed():
        return await _at_rate(send, work, per_second)


async def _at_rate(send: Send, work: Sequence[Any], per_second: float) -> Load:
    latencies: list[float] = []
    running: set[asyncio.Task[None]] = set()
    started = time.perf_counter()

    async def one(content: Any, due: float) -> None:
        await send(content)
        latencies.append(time.perf_counter() - due)

    for number, content in enumerate(work):
        due = started + number / per_second
        wait = due - time.perf_counter()
        if -wait > _PATIENCE * len(work) / per_second:
            break
        if wait > 0:
            await asyncio.sleep(wait)
        while len(running) >= MAX_UNDER_WAY:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(one(content, due))
        running.add(task)
        task.add_done_callback(running.discard)
    while running:
        await asyncio.gather(*running)
    return Load(len(latencies), time.perf_counter() - started, sorted(latencies))


async def at_full_speed(send: Send, work: Sequence[Any], clients: int) -> Load:
    """So many clients, each sending the next as soon as its last was answered."""
    waiting: Iterator[Any] = iter(work)
    latencies: list[float] = []
    started = time.perf_counter()

    async def client() -> None:
        for content in waiting:
            begun = time.perf_counter()
            await send(content)
            latencies.append(time.perf_counter() - begun)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return Load(len(work), time.perf_counter() - started, sorted(latencies))
