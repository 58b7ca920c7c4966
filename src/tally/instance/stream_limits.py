"""Limits on open streams per person and per address, across all instances and backends.

Every instance reports its counts to the store and reads those of the other live instances when a
stream opens. A client above a limit is rejected from memory, without a request to the store, so an
attack of rejected attempts stays cheap. While the store is unavailable, each instance applies the
limits to its own streams and reports them afterwards.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from tally.errors import RateLimited, Unavailable
from tally.instance.repository.streams import MAX_REPORTED_CLIENTS, StreamRepository
from tally.kit.breaker import Breaker
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.kit.ids import new_uuid
from tally.kit.metrics import Metrics
from tally.kit.ttl_cache import TTLCache

T = TypeVar("T")

RETRY_AFTER_SECONDS: Final = 10
LEASE_SECONDS: Final = 10
STORE_SECONDS: Final = 1.0
BREAKER_SECONDS: Final = 2.0
# How long the counts of other instances are used to reject a client without reading them again.
REMOTE_COUNT_SECONDS: Final = 1.0
MAX_REMOTE_COUNTS: Final = 10_000


def too_many_streams(kind: str, limit: int) -> RateLimited:
    return RateLimited(
        f"Too many open streams: at most {limit} per {kind}",
        retry_after=RETRY_AFTER_SECONDS,
        code="too_many_streams",
        limit=limit,
    )


TOO_MANY_STREAMS: Final = too_many_streams("address", 10)


class StreamLimits:
    """Counts the open streams of this instance and rejects those above the limits."""

    def __init__(
        self,
        repository: StreamRepository,
        clock: Clock,
        metrics: Metrics,
        *,
        per_person: int,
        per_address: int,
    ) -> None:
        self._repository = repository
        self._clock = clock
        self._limits = {"person": per_person, "address": per_address}
        self._instance = new_uuid()
        self._other_instances: set[str] = set()
        self._has_lease = False
        self._open: Counter[str] = Counter()
        self._unreported: set[str] = set()
        self._reporting = asyncio.Lock()
        self._remote: TTLCache[str, int] = TTLCache(clock, REMOTE_COUNT_SECONDS, MAX_REMOTE_COUNTS)
        self._breaker = Breaker("streams", clock, metrics, failures=1, open_seconds=BREAKER_SECONDS)

    def check(self, clients: tuple[str, ...]) -> None:
        """Raise RateLimited if a client has no stream left, as far as this instance knows."""
        for client in clients:
            self._require(client, self._open[client] + (self._remote.get(client) or 0) + 1)

    @asynccontextmanager
    async def reserve(self, clients: tuple[str, ...]) -> AsyncIterator[None]:
        """Count a stream of each client while the block runs; raises RateLimited."""
        self.check(clients)
        self._open.update(clients)
        try:
            # Every instance reports before it reads, so two of them cannot both take the last one.
            await self._report(clients)
            await self._read_remote(clients)
            for client in clients:
                self._require(client, self._open[client] + (self._remote.get(client) or 0))
            yield
        finally:
            for client in clients:
                self._open[client] -= 1
                if not self._open[client]:
                    del self._open[client]
            # Shielded: a client that disconnects cancels the request, not the report.
            await asyncio.shield(self._report(clients))

    async def renew(self) -> None:
        """Renew the lease, find the other live instances, and report what failed before."""
        await self._try(self._renew)
        await self._report(())

    async def release(self) -> None:
        """Give up the lease at shutdown: the streams of this instance no longer count."""
        if self._has_lease:
            await self._try(lambda: self._repository.release_lease(self._instance))

    async def _renew(self) -> None:
        now = self._clock.milliseconds()
        await self._repository.renew_lease(self._instance, now + LEASE_SECONDS * 1000)
        self._has_lease = True
        live = await self._repository.find_live_instances(now)
        self._other_instances = live - {self._instance}

    async def _report(self, clients: tuple[str, ...]) -> None:
        """Store the counts of these clients; concurrent calls share one request.

        One report runs at a time, so that an older count cannot overwrite a newer one.
        """
        self._unreported.update(clients)
        async with self._reporting:
            if not self._unreported:
                return
            if not self._has_lease:
                await self._try(self._renew)
            batch = list(self._unreported)[:MAX_REPORTED_CLIENTS]
            self._unreported.difference_update(batch)
            counts = {client: self._open[client] for client in batch}
            now = self._clock.milliseconds()
            if not await self._try(lambda: self._repository.report(self._instance, counts, now)):
                self._unreported.update(batch)

    async def _read_remote(self, clients: tuple[str, ...]) -> None:
        others = self._other_instances

        async def read() -> None:
            counts = await self._repository.count(clients, others)
            for client in clients:
                self._remote.put(client, counts[client])

        if others:
            await self._try(read)

    async def _try(self, operation: Callable[[], Awaitable[object]]) -> bool:
        """Return whether the store answered in time; without it the local counts apply."""
        try:
            await self._breaker.call(lambda: finish_within(self._clock, STORE_SECONDS, operation()))
        except (Unavailable, DeadlineExceeded):
            return False
        return True

    def _require(self, client: str, count: int) -> None:
        kind = client.partition("#")[0]
        limit = self._limits[kind]
        if count > limit:
            raise too_many_streams(kind, limit)
