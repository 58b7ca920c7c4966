"""Tries again what may work the next time: with exponential back-off, full jitter, and an end.

    policy = RetryPolicy(attempts=5, base=0.1, cap=5, deadline=20, is_retryable=lambda error: isinstance(error, Throttled))
    answer = await policy.call(lambda: client.fetch(url), clock)

The wait before try n is drawn between nothing and `base` doubled n times, at most `cap`, so that
many who failed together do not come back together. An error with a `retry_after` is waited for at
least that long. There is no try after the last of `attempts`, and none that could only start after
the `deadline`: then the last error is raised as it is.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from tally.errors import RateLimited, Unavailable
from tally.kit.clock import Clock

T = TypeVar("T")

_chance = random.SystemRandom()


def is_transient(error: BaseException) -> bool:
    """Whether the domain's own errors say that it may work later."""
    return isinstance(error, (Unavailable, RateLimited))


def full_jitter(attempt: int, base: float, cap: float, chance: random.Random = _chance) -> float:
    """How long to wait after `attempt` (1, 2, …) failed: anything up to `base` doubled each time, at most `cap`."""
    # Beyond 2^63 the cap has long been reached.
    return chance.uniform(0, min(cap, base * 2.0 ** min(attempt - 1, 63)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, how patiently, for how long, and after which errors."""

    attempts: int = 5
    base: float = 0.1
    cap: float = 10.0
    deadline: float = 30.0
    is_retryable: Callable[[BaseException], bool] = is_transient

    async def call(
        self, operation: Callable[[], Awaitable[T]], clock: Clock, chance: random.Random = _chance
    ) -> T:
        """The result of `operation`, tried as often as it takes and is allowed."""
        end = clock.monotonic() + self.deadline
        # Most things work the first time, and need none of what follows, which costs more than many
        # a call itself.
        try:
            return await operation()
        except Exception as error:  # noqa: BLE001  (judged below, as the failures after it are)
            failed: Exception | None = error

        def wait(state: RetryCallState) -> float:
            jitter = full_jitter(state.attempt_number, self.base, self.cap, chance)
            asked = getattr(state.outcome and state.outcome.exception(), "retry_after", None)
            return max(jitter, asked or 0.0)

        def stop(state: RetryCallState) -> bool:
            return (
                state.attempt_number >= self.attempts
                or clock.monotonic() + state.upcoming_sleep > end
            )

        async def once() -> T:
            nonlocal failed
            if failed is not None:
                first, failed = failed, None
                raise first
            return await operation()

        # What is no Exception, a cancellation above all, is never tried again.
        is_retried = retry_if_exception(
            lambda error: isinstance(error, Exception) and self.is_retryable(error)
        )
        trying = AsyncRetrying(
            sleep=clock.sleep, wait=wait, stop=stop, retry=is_retried, reraise=True
        )
        result: T = await trying(once)
        return result
