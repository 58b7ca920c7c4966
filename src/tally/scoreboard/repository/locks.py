"""Locks shared by all processes: PostgreSQL advisory locks, one connection each.

PostgreSQL releases a lock when its connection ends, so locks of a dead process do not need to
expire and `seconds` is ignored. Extending a lock checks that its connection is alive.
"""

import hashlib
from contextlib import AsyncExitStack
from typing import Final

import asyncpg

from tally.errors import Unavailable
from tally.kit import logs
from tally.scoreboard.repository.database import Connection, Database

# Errors of a connection that the server closed; InternalClientError occurs while asyncpg is still
# processing the close.
CONNECTION_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    OSError,
    asyncpg.InternalClientError,
)

_log = logs.logger()


class AdvisoryLocks:
    """Implements the port `tally.kit.locks.Locks`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._acquired: dict[str, tuple[AsyncExitStack, Connection]] = {}

    async def acquire(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (part of the port)
        """Try to acquire the lock; return whether it succeeded."""
        if name in self._acquired:
            return False
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._database.use("acquire_lock"))
            if not await connection.fetchval(
                "SELECT pg_try_advisory_lock($1)", advisory_lock_key(name)
            ):
                return False
            self._acquired[name] = (stack.pop_all(), connection)
        return True

    async def extend(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (part of the port)
        """Return whether this process still owns the lock."""
        acquired = self._acquired.get(name)
        if acquired is None:
            return False
        _, connection = acquired
        try:
            return not connection.is_closed() and await connection.fetchval("SELECT true")
        except CONNECTION_ERRORS as error:
            _log.warning(
                "Lock lost with its connection", action="lock_lost", lock=name, error=error
            )
            return False

    async def release(self, name: str) -> None:
        """Release the lock, if this process owns it and its connection is alive."""
        acquired = self._acquired.pop(name, None)
        if acquired is None:
            return
        stack, connection = acquired
        try:
            async with stack:
                if not connection.is_closed():
                    await connection.fetchval(
                        "SELECT pg_advisory_unlock($1)", advisory_lock_key(name)
                    )
        except Unavailable as error:
            _log.warning(
                "Lock lost with its connection", action="lock_lost", lock=name, error=error
            )


def advisory_lock_key(name: str) -> int:
    """Return the 64-bit key of the lock in PostgreSQL."""
    return int.from_bytes(hashlib.sha256(f"tally lock {name}".encode()).digest()[:8], signed=True)
