"""Rejects the writes of an instance soon after a fence was set, and acknowledges none after that.

DynamoDB cannot reject the writes of some clients. So each instance reads an item, the fence, and
may write for `LEASE_SECONDS` after the start of a read that found none. A write whose response
arrives later is acknowledged only if another read finds no fence. So once the fence is set and the
time of the lease has passed, every acknowledged write is in the tables.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.store.errors import OutcomeUnknown, StoreUnavailable, WritesPaused

LEASE_SECONDS: Final = 5.0
RENEWAL_SECONDS: Final = 1.0  # at most one read per second, and none without writes

T = TypeVar("T")


class WriteGate:
    """Lets writes pass while no fence is set; `read` returns why one is, or None."""

    def __init__(self, read: Callable[[], Awaitable[str | None]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._read_at = float("-inf")
        self._reason: str | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def run(self, write: Callable[[], Awaitable[T]]) -> T:
        """Run a write; raise WritesPaused before it, or OutcomeUnknown if it was too slow."""
        if self._age > RENEWAL_SECONDS:
            renewal = self._start_renewal()
            if self._age >= LEASE_SECONDS:
                await asyncio.shield(renewal)
        if self._reason is not None:
            raise WritesPaused(self._reason)
        result = await write()
        while self._age >= LEASE_SECONDS:
            await asyncio.shield(self._start_renewal())
        if self._reason is not None:
            raise OutcomeUnknown(f"the response to the write came late: {self._reason}")
        return result

    async def close(self) -> None:
        """Complete a read in progress."""
        if self._renewal is not None:
            await asyncio.wait({self._renewal})

    @property
    def _age(self) -> float:
        return self._clock.monotonic() - self._read_at

    def _start_renewal(self) -> "asyncio.Task[None]":
        """Read the fence in the background; the callers of this moment share the read."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._read_fence())
            self._renewal.add_done_callback(_retrieve_error)
        return self._renewal

    async def _read_fence(self) -> None:
        started = self._clock.monotonic()
        try:
            self._reason = await self._read()
        except Unavailable as error:
            raise StoreUnavailable(f"the write fence cannot be read: {error.message}") from error
        self._read_at = started


def _retrieve_error(task: "asyncio.Task[None]") -> None:
    """Mark an error as retrieved: a write that needs the lease reads again and raises its own."""
    if not task.cancelled():
        task.exception()
