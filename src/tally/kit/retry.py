"""Retries transient failures with exponential back-off, full jitter and a deadline.

    policy = RetryPolicy(attempts=5, base=0.1, cap=5, deadline=20, is_retryable=is_throttled)
    response = await policy.call(lambda: client.fetch(url), clock)

The delay after attempt n is random between 0 and `base` * 2^(n-1), at most `cap`, so that clients
that failed together do not retry together. An error's `retry_after` is a lower bound. There is no
retry after `attempts` attempts, nor one that would start after the `deadline`; the last error is
raised unchanged.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from tally.errors import RateLimited, Unavailable
from tally.kit.clock import Clock

T = TypeVar("T")

_system_rng = random.SystemRandom()


def is_transient(error: BaseException) -> bool:
    """Return whether a domain error may disappear by itself."""
    return isinstance(error, (Unavailable, RateLimited))


def full_jitter(attempt: int, base: float, cap: float, rng: random.Random = _system_rng) -> float:
    """Return a random delay after attempt number `attempt` (1, 2, …), at most `cap`."""
    # Avoids overflow; the cap applies long before 2^63.
    return rng.uniform(0, min(cap, base * 2.0 ** min(attempt - 1, 63)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, how long and after which errors to retry."""

    attempts: int = 5
    base: float = 0.1
    cap: float = 10.0
    deadline: float = 30.0
    is_retryable: Callable[[BaseException], bool] = is_transient

    async def call(
        self, operation: Callable[[], Awaitable[T]], clock: Clock, rng: random.Random = _system_rng
    ) -> T:
        """Return the result of `operation`, retrying as the policy allows."""
        end = clock.monotonic() + self.deadline
        # The first attempt usually succeeds; setting up tenacity would cost more than many calls.
        try:
            return await operation()
        except Exception as error:  # noqa: BLE001  (handled below like later failures)
            first_error: Exception | None = error

        def wait(state: RetryCallState) -> float:
            jitter = full_jitter(state.attempt_number, self.base, self.cap, rng)
            retry_after = getattr(state.outcome and state.outcome.exception(), "retry_after", None)
            return max(jitter, retry_after or 0.0)

        def stop(state: RetryCallState) -> bool:
            return (
                state.attempt_number >= self.attempts
                or clock.monotonic() + state.upcoming_sleep > end
            )

        async def attempt() -> T:
            nonlocal first_error
            if first_error is not None:
                error, first_error = first_error, None
                raise error
            return await operation()

        # Cancellation and other BaseExceptions are never retried.
        is_retried = retry_if_exception(
            lambda error: isinstance(error, Exception) and self.is_retryable(error)
        )
        retrying = AsyncRetrying(
            sleep=clock.sleep, wait=wait, stop=stop, retry=is_retried, reraise=True
        )
        result: T = await retrying(attempt)
        return result
