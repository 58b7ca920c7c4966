"""Limits on open SSE streams, per player and per address, across all processes.

Streams are counted in Redis and in this process; the local count applies while Redis is
unavailable.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from tally.errors import RateLimited
from tally.scoreboard.repository.stream_registry import StreamRegistry
from tally.scoreboard.service.redis_breaker import RedisBreaker

RETRY_AFTER_SECONDS = 10


class StreamSlots:
    """Counts open streams and rejects those above the limits."""

    def __init__(
        self, registry: StreamRegistry, breaker: RedisBreaker, *, per_user: int, per_address: int
    ) -> None:
        self._registry = registry
        self._breaker = breaker
        self._limits = {"user": per_user, "address": per_address}
        self._open: Counter[tuple[str, str]] = Counter()

    @property
    def open_count(self) -> int:
        """The number of streams open in this process."""
        return sum(count for (kind, _), count in self._open.items() if kind == "address")

    @asynccontextmanager
    async def reserve(self, user_id: str | None, address: str) -> AsyncIterator[None]:
        """Occupy a slot of the player and of the address; raises RateLimited."""
        reserved: list[tuple[str, str]] = []
        keys = [("address", address)] + ([("user", user_id)] if user_id is not None else [])
        try:
            for key in keys:
                reserved.append(key)
                self._open[key] += 1
                limit = self._limits[key[0]]
                if await self._report(key) > limit:
                    raise RateLimited(
                        f"Too many open streams: at most {limit} per {key[0]}",
                        retry_after=RETRY_AFTER_SECONDS,
                        code="rate_limit_exceeded",
                        limit=limit,
                    )
            yield
        finally:
            for key in reserved:
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]
            for key in reserved:
                await self._report(key)

    async def heartbeat(self) -> None:
        """Tell Redis that this process is alive; report all streams if Redis lost them."""
        if await self._breaker.call_or_else(self._registry.heartbeat, _skip_report):
            return
        for key in list(self._open):
            await self._report(key)

    async def _report(self, key: tuple[str, str]) -> int:
        """Report the local count and return the count of all processes."""
        local_count = self._open[key]

        async def local_only() -> int:
            return local_count

        return await self._breaker.call_or_else(
            partial(self._registry.report, *key, local_count), local_only
        )


async def _skip_report() -> bool:
    return True
