"""Work that only one instance may do at a time: under a lock that expires by itself and is extended while the work lasts.

`Locks` is the port; its adapter keeps the locks in a table that all instances share. An instance
that dies is taken over when its lock expires. One that loses its lock without noticing is the
danger, so `holding` cancels the work when the lock is lost, or could not be extended in time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tally.kit import logs
from tally.kit.clock import Clock, finish_within

T = TypeVar("T")

_log = logs.logger()


class Locks(Protocol):
    """Locks of one owner, by name."""

    async def acquire(self, name: str, seconds: float) -> bool:
        """Take the lock for that long; false if another owner has it."""

    async def extend(self, name: str, seconds: float) -> bool:
        """Keep the lock for that long from now; false if it is no longer ours."""

    async def release(self, name: str) -> None:
        """Let go of the lock, if it is ours."""


class LockedElsewhere(Exception):
    """Another instance has the lock, which is no error: the work is in good hands."""


class LockLost(Exception):
    """The lock was lost, and the work under it has been cancelled."""


async def run_with_lock(
    locks: Locks, clock: Clock, name: str, seconds: float, work: Callable[[], Awaitable[T]]
) -> T:
    """The result of `work`, done under the lock `name`; or LockedElsewhere, or LockLost."""
    acquired_at = clock.monotonic()
    if not await locks.acquire(name, seconds):
        raise LockedElsewhere(name)
    working = asyncio.ensure_future(work())
    keeping = asyncio.ensure_future(_keep(locks, clock, name, seconds, acquired_at))
    try:
        await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise LockLost(name)
        return working.result()
    finally:
        working.cancel()
        keeping.cancel()
        await asyncio.wait({working, keeping})
        await _let_go(locks, name)


async def _keep(locks: Locks, clock: Clock, name: str, seconds: float, acquired_at: float) -> None:
    """Extend the lock again and again; return when it is lost."""
    expires_at = acquired_at + seconds
    while (left := expires_at - clock.monotonic()) > 0:
        await clock.sleep(min(seconds / 3, left))
        asked_at = clock.monotonic()
        try:
            if not await finish_within(clock, expires_at - asked_at, locks.extend(name, seconds)):
                return
        except Exception as error:  # noqa: BLE001  (whatever it was, the lock is ours until it expires: try again)
            _log.warning("Lock not extended", action="lock_extend", lock=name, error=error)
        else:
            expires_at = asked_at + seconds


async def _let_go(locks: Locks, name: str) -> None:
    try:
        await locks.release(name)
    except Exception as error:  # noqa: BLE001  (it expires by itself)
        _log.warning("Lock not released", action="lock_release", lock=name, error=error)
