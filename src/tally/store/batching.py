"""Work in pieces: chunks that fit one request, a few of them at once, and what a request left undone tried again.

A batch request may leave part of its work undone when the service is busy or the answer would be
too large. `send_until_complete` sends the rest again, after a pause that grows while nothing gets done, with
full jitter so that many clients do not come back together.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tally.kit.clock import Clock
from tally.kit.retry import full_jitter
from tally.store.errors import Throttled

T = TypeVar("T")
INITIAL_BACKOFF_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 5.0
MAX_STALLED_ATTEMPTS = 8


def chunks(work: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The work in order, in pieces of at most `size`."""
    return (work[start : start + size] for start in range(0, len(work), size))


@dataclass(frozen=True, slots=True)
class BatchRetryPolicy:
    """How to wait for a busy service."""

    clock: Clock
    rng: random.Random

    async def pause(self, fruitless: int) -> None:
        """Wait up to twice as long after each round in which nothing got done."""
        await self.clock.sleep(
            full_jitter(fruitless + 1, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, self.rng)
        )


async def send_until_complete(
    work: Sequence[T],
    send: Callable[[Sequence[T]], Awaitable[Sequence[T]]],
    retry_policy: BatchRetryPolicy,
) -> None:
    """Send the work, and what `send` returns as undone again, until nothing is left; Throttled if it stays that way."""
    fruitless = 0
    while undone := await send(work):
        fruitless = 0 if len(undone) < len(work) else fruitless + 1
        if fruitless == MAX_STALLED_ATTEMPTS:
            raise Throttled(
                f"{len(undone)} items of a batch were left undone {fruitless} times in a row"
            )
        await retry_policy.pause(fruitless)
        work = undone


async def run_bounded(jobs: Iterable[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Run all jobs, at most so many at once; the first that fails stops the others, and its error is raised."""
    waiting = iter(jobs)

    async def work_off() -> None:
        for job in waiting:
            await job()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work_off())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
