"""Locks that all processes share: PostgreSQL's advisory locks, each held by a connection of its own.

Such a lock lasts as long as its connection, so one whose holder dies is free at once, and there is nothing to expire. What
`seconds` asks for is therefore not needed; to extend a lock is to see that its connection is still there.
"""

import hashlib
from contextlib import AsyncExitStack

from tally.errors import Unavailable
from tally.scoreboard.repository.database import Connection, Database


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
            if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", key_of(name)):
                return False
            self._held[name] = (stack.pop_all(), connection)
        return True

    async def extend(self, name: str, seconds: float) -> bool:  # noqa: ARG002  (part of the port)
        """Whether the lock is still ours."""
        held = self._held.get(name)
        if held is None:
            return False
        return not held[1].is_closed() and await held[1].fetchval("SELECT true")

    async def release(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is None:
            return
        stack, connection = held
        async with stack:
            if not connection.is_closed() and not await connection.fetchval("SELECT pg_advisory_unlock($1)", key_of(name)):
                raise Unavailable(f"The lock {name} was not ours to release")


def key_of(name: str) -> int:
    """The number that PostgreSQL knows the lock by."""
    return int.from_bytes(hashlib.sha256(f"tally lock {name}".encode()).digest()[:8], signed=True)
