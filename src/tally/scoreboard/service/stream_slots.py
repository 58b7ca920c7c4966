"""How many streams somebody may have open: so many for a player, so many for an address, on all processes together.

What is counted in Redis is also counted here, and holds for this process alone while Redis is away.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from tally.errors import RateLimited
from tally.scoreboard.repository.stream_registry import StreamRegistry
from tally.scoreboard.service.redis_breaker import RedisBreaker


class StreamSlots:
    """Counts open streams, and refuses one too many."""

    def __init__(
        self, streams: StreamRegistry, guard: RedisBreaker, *, per_user: int, per_address: int
    ) -> None:
        self._streams = streams
        self._guard = guard
        self._limits = {"user": per_user, "address": per_address}
        self._open: Counter[tuple[str, str]] = Counter()

    @property
    def open(self) -> int:
        """How many streams are open here now."""
        return sum(count for (kind, _), count in self._open.items() if kind == "address")

    @asynccontextmanager
    async def taken(self, user_id: str | None, address: str) -> AsyncIterator[None]:
        """Hold a place for as long as the stream lasts."""
        taken: list[tuple[str, str]] = []
        try:
            for key in [("address", address)] + (
                [("user", user_id)] if user_id is not None else []
            ):
                taken.append(key)
                self._open[key] += 1
                limit = self._limits[key[0]]
                if await self._told(key) > limit:
                    raise RateLimited(
                        f"At most {limit} streams at once",
                        retry_after=10,
                        code="rate_limit_exceeded",
                        limit=limit,
                    )
            yield
        finally:
            for key in taken:
                self._open[key] -= 1
                if not self._open[key]:
                    del self._open[key]
            for key in taken:
                await self._told(key)

    async def beat(self) -> None:
        """Let Redis know that this process lives, and everything that it has open if Redis has forgotten."""
        if await self._guard.ask(self._streams.live, otherwise=_away):
            return
        for key in list(self._open):
            await self._told(key)

    async def _told(self, key: tuple[str, str]) -> int:
        """How many are open for them, as far as is known."""
        here = self._open[key]

        async def alone() -> int:
            return here

        return await self._guard.ask(partial(self._streams.tell, *key, here), otherwise=alone)


async def _away() -> bool:
    return True
