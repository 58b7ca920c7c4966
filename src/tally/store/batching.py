"""Splits work into chunks, runs them concurrently, and resends what a request left unprocessed.

A batch request may leave work unprocessed when the service is busy or the response would be too
large. `send_until_complete` sends the rest again, with exponential back-off and full jitter while
there is no progress.
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
    """Split the work into chunks of at most `size`, in order."""
    return (work[start : start + size] for start in range(0, len(work), size))


@dataclass(frozen=True, slots=True)
class BatchRetryPolicy:
    """Back-off between attempts of a batch."""

    clock: Clock
    rng: random.Random

    async def back_off(self, stalled: int) -> None:
        """Sleep; the maximum doubles with each attempt that made no progress."""
        await self.clock.sleep(
            full_jitter(stalled + 1, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, self.rng)
        )


async def send_until_complete(
    work: Sequence[T],
    send: Callable[[Sequence[T]], Awaitable[Sequence[T]]],
    retry_policy: BatchRetryPolicy,
) -> None:
    """Send the work until nothing is unprocessed.

    Raise Throttled after `MAX_STALLED_ATTEMPTS` attempts without progress.
    """
    stalled = 0
    while unprocessed := await send(work):
        stalled = 0 if len(unprocessed) < len(work) else stalled + 1
        if stalled == MAX_STALLED_ATTEMPTS:
            raise Throttled(
                f"{len(unprocessed)} items of a batch were not processed in {stalled} attempts"
            )
        await retry_policy.back_off(stalled)
        work = unprocessed


async def run_bounded(jobs: Iterable[Callable[[], Awaitable[None]]], concurrency: int) -> None:
    """Run all jobs, at most `concurrency` at a time.

    The first failure cancels the others, and its error is raised.
    """
    pending = iter(jobs)

    async def run_pending() -> None:
        for job in pending:
            await job()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(run_pending())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
