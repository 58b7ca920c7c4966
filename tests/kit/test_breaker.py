"""A circuit breaker rejects calls to a failing service and probes with one call at a time."""

import asyncio

import pytest

from tally.errors import NotFound, Unavailable
from tally.kit.breaker import Breaker, BreakerState
from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
from tests.kit.conftest import LogLines


class Service:
    """An external service that is up or down and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def call(self) -> str:
        self.calls += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return "result"


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def breaker(clock: ManualClock, metrics: Metrics) -> Breaker:
    return Breaker(
        "sportmonks",
        clock,
        metrics,
        failures=3,
        open_seconds=30,
        is_failure=lambda error: not isinstance(error, NotFound),
    )


async def fail(breaker: Breaker, service: Service, times: int) -> None:
    service.error = ConnectionError("down")
    for _ in range(times):
        with pytest.raises(ConnectionError):
            await breaker.call(service.call)


async def test_a_success_resets_the_failure_count(breaker: Breaker, service: Service) -> None:
    await fail(breaker, service, 2)
    service.error = None
    assert await breaker.call(service.call) == "result"
    await fail(breaker, service, 2)
    assert breaker.state is BreakerState.CLOSED


async def test_consecutive_failures_open_the_breaker(
    breaker: Breaker, service: Service, clock: ManualClock
) -> None:
    await fail(breaker, service, 3)
    await clock.advance(10)
    with pytest.raises(Unavailable, match="sportmonks is unavailable") as caught:
        await breaker.call(service.call)
    assert service.calls == 3
    assert caught.value.retry_after == 20


async def test_a_successful_probe_closes_the_breaker(
    breaker: Breaker, service: Service, clock: ManualClock
) -> None:
    await fail(breaker, service, 3)
    await clock.advance(30)
    service.error = None
    assert await breaker.call(service.call) == "result"
    assert breaker.state is BreakerState.CLOSED
    await fail(breaker, service, 2)
    assert breaker.state is BreakerState.CLOSED


async def test_a_failed_probe_opens_the_breaker_again(
    breaker: Breaker, service: Service, clock: ManualClock
) -> None:
    await fail(breaker, service, 3)
    await clock.advance(30)
    await fail(breaker, service, 1)
    await clock.advance(29)
    with pytest.raises(Unavailable):
        await breaker.call(service.call)
    assert service.calls == 4


async def test_an_outage_is_logged_once(
    breaker: Breaker, service: Service, clock: ManualClock, log_lines: LogLines
) -> None:
    """Not every probe that finds the service still down."""
    await fail(breaker, service, 3)
    for _ in range(3):
        await clock.advance(30)
        await fail(breaker, service, 1)
    await clock.advance(30)
    service.error = None
    await breaker.call(service.call)
    assert [line["action"] for line in log_lines()] == ["breaker_opened", "breaker_closed"]


async def test_only_one_probe_runs_at_a_time(
    breaker: Breaker, service: Service, clock: ManualClock
) -> None:
    await fail(breaker, service, 3)
    await clock.advance(30)
    service.error, service.gate = None, asyncio.Event()
    probe = asyncio.create_task(breaker.call(service.call))
    await asyncio.sleep(0)
    for _ in range(5):
        with pytest.raises(Unavailable):
            await breaker.call(service.call)
    service.gate.set()
    assert await probe == "result"
    assert service.calls == 4


async def test_after_a_cancelled_probe_the_next_call_is_the_probe(
    breaker: Breaker, service: Service, clock: ManualClock
) -> None:
    await fail(breaker, service, 3)
    await clock.advance(30)
    service.error, service.gate = None, asyncio.Event()
    probe = asyncio.create_task(breaker.call(service.call))
    await asyncio.sleep(0)
    probe.cancel()
    await asyncio.wait({probe})
    service.gate = None
    assert await breaker.call(service.call) == "result"
    assert breaker.state is BreakerState.CLOSED


async def test_a_result_from_before_the_breaker_opened_is_ignored(
    breaker: Breaker, service: Service
) -> None:
    """A slow call that began earlier neither closes the breaker nor keeps it open longer."""
    service.gate = asyncio.Event()
    slow = asyncio.create_task(breaker.call(service.call))
    await asyncio.sleep(0)
    gate, service.gate = service.gate, None
    await fail(breaker, service, 3)
    service.error = None
    gate.set()
    assert await slow == "result"
    assert breaker.state is BreakerState.OPEN


async def test_an_error_that_is_no_failure_counts_as_success(
    breaker: Breaker, service: Service
) -> None:
    service.error = NotFound("No such fixture")
    for _ in range(10):
        with pytest.raises(NotFound):
            await breaker.call(service.call)
    assert breaker.state is BreakerState.CLOSED


async def test_state_and_calls_are_metrics(
    breaker: Breaker, service: Service, clock: ManualClock, metrics: Metrics
) -> None:
    def calls(outcome: str) -> float | None:
        labels = {"breaker": "sportmonks", "outcome": outcome}
        return metrics.registry.get_sample_value("tally_breaker_calls_total", labels)

    def state() -> float | None:
        return metrics.registry.get_sample_value("tally_breaker_state", {"breaker": "sportmonks"})

    assert state() == 0
    await breaker.call(service.call)
    await fail(breaker, service, 3)
    assert state() == 2
    with pytest.raises(Unavailable):
        await breaker.call(service.call)
    assert (calls("succeeded"), calls("failed"), calls("rejected")) == (1, 3, 1)
    await clock.advance(30)
    service.error = None
    await breaker.call(service.call)
    assert state() == 0
