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
    try:
        return await _run_extended(locks, clock, name, seconds, work, acquired_at=acquired_at)
    finally:
        await _release(locks, name)


class Lease:
    """A lock that this owner keeps from run to run; when it stops, another one takes over."""

    def __init__(self, locks: Locks, clock: Clock, name: str, seconds: float) -> None:
        self._locks = locks
        self._clock = clock
        self._name = name
        self._seconds = seconds
        self._expires_at: float | None = None

    @property
    def is_held(self) -> bool:
        """Whether this owner held the lock at the end of its last run."""
        return self._expires_at is not None

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` and keep the lock, or raise LockedElsewhere or LockLost."""
        now = self._clock.monotonic()
        if self._expires_at is None or self._expires_at - now <= self._seconds / 2:
            await self._renew(self._seconds)
        return await _run_extended(
            self._locks,
            self._clock,
            self._name,
            self._seconds,
            work,
            acquired_at=(self._expires_at or now) - self._seconds,
        )

    async def keep(self, seconds: float) -> None:
        """Keep the lock until the next run in `seconds`, and half its lifetime longer."""
        if self._expires_at is None:
            return
        expires_at = self._clock.monotonic() + seconds + self._seconds / 4
        if self._expires_at < expires_at:
            await self._renew(seconds + self._seconds / 2)

    async def release(self) -> None:
        """Let another owner take over immediately."""
        if self._expires_at is not None:
            self._expires_at = None
            await _release(self._locks, self._name)

    async def _renew(self, seconds: float) -> None:
        requested_at = self._clock.monotonic()
        was_held, self._expires_at = self._expires_at is not None, None
        is_held = was_held and await self._locks.extend(self._name, seconds)
        if not is_held and not await self._locks.acquire(self._name, seconds):
            raise LockedElsewhere(self._name)
        self._expires_at = requested_at + seconds


async def _run_extended(
    locks: Locks,
    clock: Clock,
    name: str,
    seconds: float,
    work: Callable[[], Awaitable[T]],
    *,
    acquired_at: float,
) -> T:
    """Run `work` and extend the lock meanwhile, or cancel it and raise LockLost."""
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
