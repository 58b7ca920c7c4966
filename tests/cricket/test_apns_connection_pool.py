"""The connection pool adapts its concurrency to APNs and serves waiting requests in FIFO order."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pyreqwest.client import ClientBuilder

from tally.cricket.apns.connection_pool import (
    INITIAL_CONCURRENCY,
    MAX_CONCURRENCY,
    MIN_CONCURRENCY,
    ConnectionPool,
    PooledConnection,
)
from tally.kit.clock import ManualClock

PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 8.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def pool(clock: ManualClock) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool(
        lambda: ClientBuilder().build(),
        2,
        clock,
        pause=PAUSE_SECONDS,
        max_pause=MAX_PAUSE_SECONDS,
    )
    yield pool
    await pool.close()


def acquire(pool: ConnectionPool, count: int) -> list[PooledConnection]:
    acquired = [pool.try_acquire() for _ in range(count)]
    assert None not in acquired
    return [connection for connection in acquired if connection is not None]


async def test_the_least_loaded_connection_is_used_until_all_are_full(
    pool: ConnectionPool,
) -> None:
    in_flight = [
        connection.in_flight
        for connection in pool.connections
        if acquire(pool, INITIAL_CONCURRENCY)
    ]
    assert in_flight == [INITIAL_CONCURRENCY // 2, INITIAL_CONCURRENCY]
    acquire(pool, 2 * INITIAL_CONCURRENCY - pool.in_flight)
    assert pool.try_acquire() is None


async def test_successes_raise_the_limit_up_to_the_maximum(pool: ConnectionPool) -> None:
    first, second = pool.connections
    for _ in range(3 * MAX_CONCURRENCY):
        pool.record_success(first)
    assert first.limit == MAX_CONCURRENCY
    assert second.limit == INITIAL_CONCURRENCY
    assert pool.capacity == 2 * MAX_CONCURRENCY


async def test_a_burst_of_failures_counts_once(pool: ConnectionPool) -> None:
    """A hundred requests that fail together halve the limit once."""
    connection = pool.connections[0]
    connection.requests = 100
    for number in range(1, 101):
        pool.throttle(connection, number, 0, has_response=True)
    assert (connection.limit, connection.failures) == (INITIAL_CONCURRENCY / 2, 1)


async def test_repeated_failures_leave_the_minimum(pool: ConnectionPool) -> None:
    connection = pool.connections[0]
    for number in range(1, 20):
        connection.requests = number
        pool.throttle(connection, number, 0, has_response=True)
    assert connection.limit == MIN_CONCURRENCY
    pool.record_success(connection)
    assert MIN_CONCURRENCY < connection.limit < MIN_CONCURRENCY + 1


async def test_a_connection_pauses_after_a_failure_and_the_other_continues(
    pool: ConnectionPool, clock: ManualClock
) -> None:
    paused, active = pool.connections
    paused.requests = 1
    pool.throttle(paused, 1, 5.0, has_response=True)
    assert set(acquire(pool, INITIAL_CONCURRENCY)) == {active}
    assert pool.try_acquire() is None
    waiting = asyncio.create_task(pool.acquire())
    await clock.until_sleeping()
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.1)
    assert await waiting is paused


async def test_retry_after_is_respected_up_to_the_maximum_pause(
    pool: ConnectionPool, clock: ManualClock
) -> None:
    connection = pool.connections[0]
    connection.requests = 1
    pool.throttle(connection, 1, 3600.0, has_response=True)
    await clock.until_sleeping()
    await clock.advance(MAX_PAUSE_SECONDS)
    assert connection.pauses == 0


async def test_waiting_requests_are_served_in_fifo_order(pool: ConnectionPool) -> None:
    acquired = acquire(pool, 2 * INITIAL_CONCURRENCY)
    served: list[int] = []

    async def wait(number: int) -> None:
        await pool.acquire()
        served.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await asyncio.sleep(0)
    for connection in acquired[:5]:
        pool.release(connection)
    await asyncio.gather(*waiting)
    assert served == [0, 1, 2, 3, 4]


async def test_the_slot_of_a_cancelled_request_goes_to_the_next(pool: ConnectionPool) -> None:
    """A cancellation never leaks a slot."""
    acquired = acquire(pool, 2 * INITIAL_CONCURRENCY)
    first, second = (asyncio.create_task(pool.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    pool.release(acquired[0])
    first.cancel()
    connection = await asyncio.wait_for(second, 30)
    assert connection is acquired[0]
    assert first.cancelled()
    assert pool.in_flight == 2 * INITIAL_CONCURRENCY


async def test_three_consecutive_time_outs_replace_the_connection(
    pool: ConnectionPool,
) -> None:
    connection = pool.connections[0]
    before = connection.client
    pool.throttle(connection, 1, 0, has_response=False)
    pool.throttle(connection, 2, 0, has_response=False)
    pool.record_success(connection)
    pool.throttle(connection, 3, 0, has_response=False)
    pool.throttle(connection, 4, 0, has_response=False)
    assert connection.client is before
    pool.throttle(connection, 5, 0, has_response=False)
    assert connection.client is not before
