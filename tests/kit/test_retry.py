"""A retry policy limits attempts, delays and total time, and retries only retryable errors."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.errors import Invalid, RateLimited, Unavailable
from tally.kit.clock import ManualClock, SystemClock
from tally.kit.retry import RetryPolicy, full_jitter, is_transient


class InstantClock(SystemClock):
    """A clock whose sleeps return immediately and advance its time."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.elapsed += seconds


class FailingOperation:
    """Fails with each of `errors` in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= len(self.errors):
            raise self.errors[self.calls - 1]
        return "done"


async def test_an_operation_that_succeeds_on_the_third_attempt_succeeds() -> None:
    clock, operation = InstantClock(), FailingOperation(Unavailable("Down"), Unavailable("Down"))
    assert await RetryPolicy().call(operation, clock) == "done"
    assert operation.calls == 3
    assert len(clock.slept) == 2


async def test_an_immediate_success_does_not_sleep() -> None:
    clock = InstantClock()
    assert await RetryPolicy().call(FailingOperation(), clock) == "done"
    assert clock.slept == []


async def test_the_last_error_is_raised_unchanged() -> None:
    errors = [Unavailable(f"Unavailable {number}") for number in range(5)]
    operation = FailingOperation(*errors)
    with pytest.raises(Unavailable) as caught:
        await RetryPolicy(attempts=3).call(operation, InstantClock())
    assert caught.value is errors[2]
    assert operation.calls == 3


async def test_a_permanent_error_is_not_retried() -> None:
    operation = FailingOperation(Invalid("Wrong"))
    with pytest.raises(Invalid):
        await RetryPolicy().call(operation, InstantClock())
    assert operation.calls == 1


async def test_retryable_errors_are_configurable() -> None:
    policy = RetryPolicy(is_retryable=lambda error: isinstance(error, KeyError))
    assert await policy.call(FailingOperation(KeyError("a")), InstantClock()) == "done"
    with pytest.raises(Unavailable):
        await policy.call(FailingOperation(Unavailable("Down")), InstantClock())


async def test_retry_after_is_respected() -> None:
    """It may exceed the cap."""
    clock = InstantClock()
    operation = FailingOperation(
        RateLimited("Slow down", retry_after=12), Unavailable("Down", retry_after=None)
    )
    assert await RetryPolicy(cap=1).call(operation, clock) == "done"
    assert clock.slept[0] == 12
    assert clock.slept[1] <= 1


async def test_a_retry_after_beyond_the_deadline_ends_the_retries() -> None:
    clock = InstantClock()
    with pytest.raises(RateLimited):
        await RetryPolicy(deadline=10).call(
            FailingOperation(RateLimited("Slow down", retry_after=11)), clock
        )
    assert clock.slept == []


async def test_a_cancelled_retry_ends() -> None:
    clock, operation = ManualClock(), FailingOperation(*[Unavailable("Down")] * 9)
    task = asyncio.create_task(RetryPolicy(base=100, cap=100, deadline=1000).call(operation, clock))
    await clock.until_sleeping()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert operation.calls == 1


async def test_a_cancellation_inside_the_operation_is_not_retried() -> None:
    calls = 0

    async def operation() -> None:
        nonlocal calls
        calls += 1
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await RetryPolicy(is_retryable=lambda _: True).call(operation, InstantClock())
    assert calls == 1


seconds = st.floats(0, 100)
waits = st.none() | st.floats(0, 50)


policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 12),
    base=seconds,
    cap=seconds,
    deadline=st.floats(0, 300),
    is_retryable=st.just(is_transient),
)


@given(policies, st.lists(waits, max_size=15), st.integers())
async def test_the_policy_limits_hold(
    policy: RetryPolicy, retry_afters: list[float | None], seed: int
) -> None:
    """Attempts, deadline and delays stay within the policy for any failures."""
    clock = InstantClock()
    operation = FailingOperation(*(Unavailable("Down", retry_after=wait) for wait in retry_afters))
    succeeded = False
    try:
        succeeded = await policy.call(operation, clock, random.Random(seed)) == "done"
    except Unavailable:
        succeeded = False
    assert operation.calls <= policy.attempts
    assert clock.elapsed <= policy.deadline
    assert len(clock.slept) == operation.calls - 1
    assert succeeded == (operation.calls == len(retry_afters) + 1)
    for number, (slept, wait) in enumerate(zip(clock.slept, retry_afters, strict=False)):
        assert slept >= (wait or 0)
        assert slept <= max(wait or 0, min(policy.cap, policy.base * 2**number))


@given(st.integers(1, 10_000), seconds, seconds, st.integers())
def test_jitter_is_full(attempt: int, base: float, cap: float, seed: int) -> None:
    """A delay is between zero and the exponential back-off, and at most the cap."""
    drawn = full_jitter(attempt, base, cap, random.Random(seed))
    assert 0 <= drawn <= cap
    assert drawn <= base * 2.0 ** min(attempt - 1, 63)
