"""Stream limits across instances, and their recovery after an instance or the store fails."""

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tally.errors import RateLimited
from tally.instance.repository.streams import StreamRepository
from tally.instance.stream_limits import BREAKER_SECONDS, LEASE_SECONDS, StreamLimits
from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
from tally.store.api import Engine
from tally.store.errors import StoreUnavailable
from tally.store.store import Store

_days = itertools.count()


class Instances:
    """Instances on one store, whose requests a test can count and fail."""

    def __init__(self, engine: Engine) -> None:
        # The tests share the table: each starts when the leases of the previous one have expired.
        self.clock = ManualClock(datetime(2096, 1, 1, tzinfo=UTC) + timedelta(days=next(_days)))
        self.requests: list[str] = []
        self.is_failing = False
        self._engine = engine

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """Forward an operation of the engine."""
        operation = getattr(self._engine, name)

        async def run(*arguments: Any) -> Any:
            self.requests.append(name)
            if self.is_failing:
                raise StoreUnavailable("down")
            return await operation(*arguments)

        return run

    async def start(self, per_person: int = 2, per_address: int = 3) -> StreamLimits:
        store = Store(self, self.clock)  # type: ignore[arg-type]  # a proxy
        limits = StreamLimits(
            StreamRepository(store),
            self.clock,
            Metrics(),
            per_person=per_person,
            per_address=per_address,
        )
        await limits.renew()
        return limits


@pytest.fixture
def instances(engine: Engine) -> Instances:
    return Instances(engine)


def new_clients() -> tuple[str, str]:
    return f"address#{secrets.token_hex(8)}", f"person#test:{secrets.token_hex(8)}"


async def expect_rejected(limits: StreamLimits, clients: tuple[str, ...], most: int) -> None:
    with pytest.raises(RateLimited, match=f"at most {most} per") as raised:
        async with limits.reserve(clients):
            pytest.fail("the stream was admitted")
    assert raised.value.code == "too_many_streams"
    assert raised.value.retry_after > 0


async def test_a_rejected_stream_counts_for_nobody(instances: Instances) -> None:
    """A stream rejected for its person does not count for its address."""
    limits = await instances.start()
    (address, ana), (_, ben) = new_clients(), new_clients()
    for _ in range(2):
        async with limits.reserve((address, ana)), limits.reserve((address, ana)):
            await expect_rejected(limits, (address, ana), 2)
            async with limits.reserve((address, ben)):
                await expect_rejected(limits, (address,), 3)


async def test_instances_share_the_limits(instances: Instances) -> None:
    """A stream that closes on one instance makes room on another."""
    one, two = await instances.start(), await instances.start()
    await one.renew()
    (here, ana), (there, ben) = new_clients(), new_clients()
    async with one.reserve((here, ana)):
        async with two.reserve((there, ana)):
            await expect_rejected(one, (here, ana), 2)
            await expect_rejected(two, (there, ana), 2)
            async with two.reserve((here, ben)), two.reserve((here,)):
                await expect_rejected(one, (here,), 3)
        await instances.clock.advance(1)
        async with one.reserve((here, ana)):
            await expect_rejected(two, (there, ana), 2)


async def test_two_instances_never_both_admit_the_last_stream(instances: Instances) -> None:
    one, two = await instances.start(per_person=1), await instances.start(per_person=1)
    await one.renew()
    for _ in range(20):
        clients, admitted = new_clients(), 0
        both_have_tried, count = asyncio.Event(), 0

        async def attempt(limits: StreamLimits) -> None:
            nonlocal admitted, count
            try:
                async with limits.reserve(clients):  # noqa: B023
                    admitted += 1
                    count += 1
                    if count == 2:
                        both_have_tried.set()  # noqa: B023
                    await both_have_tried.wait()  # noqa: B023
            except RateLimited:
                count += 1
                if count == 2:
                    both_have_tried.set()  # noqa: B023

        await asyncio.gather(attempt(one), attempt(two))
        assert admitted <= 1


async def test_the_streams_of_a_killed_instance_stop_counting(instances: Instances) -> None:
    """As soon as its lease expires, which it no longer renews."""
    killed, other = await instances.start(), await instances.start()
    clients = new_clients()
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(killed.reserve(clients))
        await instances.clock.advance(LEASE_SECONDS - 1)
        await other.renew()
        await expect_rejected(other, clients, 2)
        await instances.clock.advance(1)
        await other.renew()
        async with other.reserve(clients):
            pass


async def test_the_streams_of_a_stopped_instance_stop_counting_at_once(
    instances: Instances,
) -> None:
    stopped, other = await instances.start(), await instances.start()
    clients = new_clients()
    async with stopped.reserve(clients), stopped.reserve(clients):
        await expect_rejected(other, clients, 2)
        await stopped.release()
        await instances.clock.advance(1)
        await other.renew()
        async with other.reserve(clients):
            pass


async def test_without_the_store_each_instance_counts_its_own_streams(
    instances: Instances,
) -> None:
    """It reports them as soon as the store works again."""
    one, two = await instances.start(), await instances.start()
    await one.renew()
    clients = new_clients()
    instances.is_failing = True
    async with one.reserve(clients), one.reserve(clients):
        await expect_rejected(one, clients, 2)
        async with two.reserve(clients):
            pass
        instances.is_failing = False
        await instances.clock.advance(BREAKER_SECONDS)
        for limits in (one, two):
            await limits.renew()
        await expect_rejected(two, clients, 2)


async def test_a_store_that_hangs_delays_a_stream_by_a_second_at_most(
    instances: Instances,
) -> None:
    limits = await instances.start()
    instances._engine = _HangingEngine()  # type: ignore[assignment]  # only what is called
    opened = asyncio.Event()

    async def open_stream() -> None:
        async with limits.reserve(new_clients()):
            opened.set()

    task = asyncio.create_task(open_stream())
    await instances.clock.until_sleeping()
    await instances.clock.advance(1)
    await opened.wait()
    await task


class _HangingEngine:
    async def batch_write(self, _: object) -> None:
        await asyncio.Event().wait()


async def test_opening_costs_one_read_and_one_write(instances: Instances) -> None:
    """Without other instances not even the read, and a rejected stream costs neither."""
    alone = await instances.start()
    clients = new_clients()
    instances.requests.clear()
    async with alone.reserve(clients):
        assert instances.requests == ["batch_write"]
        other = await instances.start()
        instances.requests.clear()
        async with other.reserve(clients):
            assert instances.requests == ["batch_write", "batch_get"]
            instances.requests.clear()
            for _ in range(100):
                await expect_rejected(other, clients, 2)
            assert instances.requests == []


async def test_streams_that_open_together_share_the_write(instances: Instances) -> None:
    limits = await instances.start()
    instances.requests.clear()
    async with AsyncExitStack() as stack:
        await asyncio.gather(
            *(stack.enter_async_context(limits.reserve(new_clients())) for _ in range(100))
        )
        # 200 counts, at most 25 in a request, and one request that began before the others.
        assert instances.requests.count("batch_write") <= 10
