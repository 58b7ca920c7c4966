"""Locks that all processes share: PostgreSQL's advisory locks, each held by a connection of its own.

Such a lock lasts as long as its connection, so one whose holder dies is free at once, and there is
nothing to expire. What `seconds` asks for is therefore not needed; to extend a lock is to see that
its connection is still there.
"""

import hashlib
from contextlib import AsyncExitStack
from typing import Final

import asyncpg

from tally.errors import Unavailable
from tally.kit import logs
from tally.scoreboard.repository.database import Connection, Database

# What a connection says that the server has ended; the last one where word of it is just being
# read.
GONE: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, asyncpg.InternalClientError)

_log = logs.logger()


class AdvisoryLocks:
    """The adapter of the port `tally.kit.locks.Locks`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held: dict[str, tuple[AsyncExitStack, Connection]] = {}

    async def acquire(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (part of the port)
        """Take the lock; false if anybody has it."""
        if name in self._held:
            return False
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._database.use("hold_lock"))
            if not await connection.fetchval(
                "SELECT pg_try_advisory_lock($1)", advisory_lock_key(name)
            ):
                return False
            self._held[name] = (stack.pop_all(), connection)
        return True

    async def extend(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (part of the port)
        """Whether the lock is still ours; it went with its connection if that is gone, and somebody else may have it already."""
        held = self._held.get(name)
        if held is None:
            return False
        try:
            return not held[1].is_closed() and await held[1].fetchval("SELECT true")
        except GONE as error:
            _log.warning(
                "A lock was lost with its connection", action="lock_extend", lock=name, error=error
            )
            return False

    async def release(self, name: str) -> None:
        """Let go of the lock, if it is ours; one whose connection is gone is nobody's already."""
        held = self._held.pop(name, None)
        if held is None:
            return
        stack, connection = held
        try:
            async with stack:
                if not connection.is_closed():
                    await connection.fetchval(
                        "SELECT pg_advisory_unlock($1)", advisory_lock_key(name)
                    )
        except Unavailable as error:
            _log.warning(
                "A lock went with its connection", action="lock_release", lock=name, error=error
            )


def advisory_lock_key(name: str) -> int:
    """The number that PostgreSQL knows the lock by."""
    return int.from_bytes(hashlib.sha256(f"tally lock {name}".encode()).digest()[:8], signed=True)
