"""Runs work on one instance at a time, under an expiring lock that is extended while the work runs.

`Locks` is the port; its adapter stores the locks in a table shared by all instances. When an
instance dies, its lock expires and another instance takes over. `run_with_lock` cancels the work if
the lock is lost or cannot be extended in time, so that two instances never work concurrently.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tally.kit import logs
from tally.kit.clock import Clock, finish_within

T = TypeVar("T")

_log = logs.logger()


class Locks(Protocol):
    """Named locks of one owner."""

    async def acquire(self, name: str, seconds: float) -> bool:
        """Acquire the lock for `seconds`; return False if another owner holds it."""

    async def extend(self, name: str, seconds: float) -> bool:
        """Extend the lock to `seconds` from now; return False if this owner has lost it."""

    async def release(self, name: str) -> None:
        """Release the lock if this owner holds it."""


class LockedElsewhere(Exception):
    """Another instance holds the lock; not an error, since that instance does the work."""


class LockLost(Exception):
    """The lock was lost and the work was cancelled."""


async def run_with_lock(
    locks: Locks, clock: Clock, name: str, seconds: float, work: Callable[[], Awaitable[T]]
) -> T:
    """Run `work` under the lock `name`, or raise LockedElsewhere or LockLost."""
    acquired_at = clock.monotonic()
    if not await locks.acquire(name, seconds):
        raise LockedElsewhere(name)
    work_task = asyncio.ensure_future(work())
    extend_task = asyncio.ensure_future(
        _extend_until_lost(locks, clock, name, seconds, acquired_at)
    )
    try:
        await asyncio.wait({work_task, extend_task}, return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise LockLost(name)
        return work_task.result()
    finally:
        work_task.cancel()
        extend_task.cancel()
        await asyncio.wait({work_task, extend_task})
        await _release(locks, name)


async def _extend_until_lost(
    locks: Locks, clock: Clock, name: str, seconds: float, acquired_at: float
) -> None:
    """Extend the lock periodically; return when it is lost."""
    expires_at = acquired_at + seconds
    while (remaining := expires_at - clock.monotonic()) > 0:
        await clock.sleep(min(seconds / 3, remaining))
        requested_at = clock.monotonic()
        try:
            if not await finish_within(
                clock, expires_at - requested_at, locks.extend(name, seconds)
            ):
                return
        except Exception as error:  # noqa: BLE001  (the lock is valid until it expires: retry)
            _log.warning(
                "Extending the lock failed", action="lock_extend_failed", lock=name, error=error
            )
        else:
            expires_at = requested_at + seconds


async def _release(locks: Locks, name: str) -> None:
    try:
        await locks.release(name)
    except Exception as error:  # noqa: BLE001  (the lock expires anyway)
        _log.warning(
            "Releasing the lock failed", action="lock_release_failed", lock=name, error=error
        )
