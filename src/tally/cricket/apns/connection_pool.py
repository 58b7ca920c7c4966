"""A pool of HTTP/2 connections to APNs with adaptive concurrency.

Each connection starts with `INITIAL_CONCURRENCY` concurrent requests and grows while responses are
good. On an overload signal (429, 500, 503, a broken connection, no response) it halves its limit
and pauses, longer for each consecutive failure. The other connections continue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pyreqwest.client import Client

from tally.kit.clock import Clock
from tally.kit.retry import full_jitter

INITIAL_CONCURRENCY: Final = 100
MAX_CONCURRENCY: Final = 400
MIN_CONCURRENCY: Final = 4
# After this many consecutive requests without a response the connection counts as dead, even if the
# operating system still reports it as open.
_MAX_MISSING_RESPONSES: Final = 3


class PooledConnection:
    """One connection and its congestion state; only `ConnectionPool` changes it."""

    __slots__ = (
        "client",
        "failures",
        "in_flight",
        "is_in_slow_start",
        "limit",
        "missing_responses",
        "pauses",
        "requests",
        "throttled_at",
    )

    def __init__(self, client: Client) -> None:
        self.client = client
        self.limit = float(INITIAL_CONCURRENCY)
        self.in_flight = 0
        # The number of requests so far, and that number at the last reduction of the limit.
        self.requests = 0
        self.throttled_at = 0
        # The number of pauses that have not elapsed.
        self.pauses = 0
        # Consecutive failures, and consecutive requests without a response.
        self.failures = 0
        self.missing_responses = 0
        self.is_in_slow_start = True


class ConnectionPool:
    """Connections to one host; requests wait in FIFO order when all of them are at their limit."""

    def __init__(
        self,
        connect: Callable[[], Client],
        size: int,
        clock: Clock,
        *,
        pause: float,
        max_pause: float,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._pause = pause
        self._max_pause = max_pause
        self.connections: Sequence[PooledConnection] = [
            PooledConnection(connect()) for _ in range(size)
        ]
        self._waiters: deque[asyncio.Future[PooledConnection]] = deque()
        self._timers: set[asyncio.Task[None]] = set()
        self._retired: list[Client] = []

    @property
    def capacity(self) -> int:
        """The maximum number of requests in flight over all connections."""
        return MAX_CONCURRENCY * len(self.connections)

    @property
    def in_flight(self) -> int:
        return sum(connection.in_flight for connection in self.connections)

    def try_acquire(self) -> PooledConnection | None:
        """Reserve a request slot on the least loaded connection; None if there is no free slot.

        The caller has to `release` the slot.
        """
        best, most_free = None, 1.0
        for connection in self.connections:
            free = connection.limit - connection.in_flight
            if free >= most_free and not connection.pauses:
                best, most_free = connection, free
        if best is not None:
            best.in_flight += 1
            best.requests += 1
        return best

    async def acquire(self) -> PooledConnection:
        """Wait for a request slot, first come, first served."""
        waiter: asyncio.Future[PooledConnection] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result())
            raise

    def release(self, connection: PooledConnection) -> None:
        connection.in_flight -= 1
        if self._waiters:
            self._wake_waiters()

    def record_success(self, connection: PooledConnection) -> None:
        """Raise the limit after a response that reports no overload."""
        connection.failures = connection.missing_responses = 0
        if connection.limit < MAX_CONCURRENCY:
            connection.limit += 1.0 if connection.is_in_slow_start else 1.0 / connection.limit

    def throttle(
        self, connection: PooledConnection, number: int, retry_after: float, *, has_response: bool
    ) -> None:
        """Halve the limit and pause after the failure of the connection's request `number`.

        The pause lasts at least `retry_after` seconds, up to the maximum.
        """
        if not has_response:
            self._count_missing_response(connection)
        if number <= connection.throttled_at:
            return  # The request was in flight at the last reduction: one burst counts once.
        connection.is_in_slow_start = False
        connection.limit = max(float(MIN_CONCURRENCY), connection.limit / 2)
        connection.failures += 1
        connection.throttled_at = connection.requests
        pause = max(
            full_jitter(connection.failures, self._pause, self._max_pause),
            min(retry_after, self._max_pause),
        )
        timer = asyncio.create_task(self._resume_after(connection, pause))
        connection.pauses += 1
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)

    async def close(self) -> None:
        for timer in tuple(self._timers):
            timer.cancel()
        for client in (*self._retired, *(connection.client for connection in self.connections)):
            await client.close()

    def _count_missing_response(self, connection: PooledConnection) -> None:
        connection.missing_responses += 1
        if connection.missing_responses == _MAX_MISSING_RESPONSES:
            connection.missing_responses = 0
            # Closed later: other requests on it may still get their responses.
            self._retired = [*self._retired[-len(self.connections) :], connection.client]
            connection.client = self._connect()

    def _wake_waiters(self) -> None:
        """Assign free slots to waiters.

        A waiter owns its slot before it wakes, so that no other task can take it in between.
        """
        while self._waiters:
            if self._waiters[0].done():
                del self._waiters[0]
                continue
            connection = self.try_acquire()
            if connection is None:
                return
            self._waiters.popleft().set_result(connection)

    async def _resume_after(self, connection: PooledConnection, seconds: float) -> None:
        await self._clock.sleep(seconds)
        connection.pauses -= 1
        self._wake_waiters()
