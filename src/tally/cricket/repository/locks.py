"""The table `cricket-locks`: locks that expire unless they are extended.

`StoreLocks` implements the port `kit.locks.Locks`. An owner is one holder, not one instance: two
jobs of an instance need two owners, or each would extend the lock of the other.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from tally.kit.clock import Clock
from tally.store.access import DeleteItem, PutItem, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

CRICKET_LOCKS = Table(
    "cricket-locks",
    partition=S("lockKey"),
    ttl="ttl",
    attributes=(
        Attribute("lockKey", "S", required=True, about="usually match:{matchId}"),
        Attribute("owner", "S", required=True, about="the holder"),
        Attribute(
            "expiresAt",
            "N",
            required=True,
            about="epoch milliseconds; from then on it can be acquired",
        ),
        Attribute(
            "ttl",
            "N",
            required=True,
            about="epoch seconds, a day later: deletes locks left by a crash",
        ),
    ),
)
CLEANUP_SECONDS: Final = 86_400


_KEY: Final = {"lockKey": param("lockKey")}


@dataclass(frozen=True, slots=True)
class LockRepository:
    """Locks by key. Times are milliseconds."""

    store: Store
    tables: ClassVar = (CRICKET_LOCKS,)

    @access(
        "Acquire lock",
        PutItem(key=_KEY, condition=not_exists("lockKey") | (F("expiresAt") < param("now"))),
        table=CRICKET_LOCKS,
        by="system",
        trigger="LiveScoreJob, any concurrent job",
        frequency="Every 2.5s per live match",
    )
    async def acquire(self, lock_key: str, owner: str, now: int, expires_at: int) -> bool:
        """Acquire the lock; return False while it is held, even by the same owner."""
        item = {
            "lockKey": lock_key,
            "owner": owner,
            "expiresAt": expires_at,
            "ttl": expires_at // 1000 + CLEANUP_SECONDS,
        }
        try:
            await self.store.put(
                CRICKET_LOCKS, item, condition=not_exists("lockKey") | (F("expiresAt") < now)
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Release lock",
        DeleteItem(key=_KEY, condition=F("owner") == param("owner")),
        table=CRICKET_LOCKS,
        by="system",
        trigger="LiveScoreJob completion",
        frequency="After each processing tick",
    )
    async def release(self, lock_key: str, owner: str) -> bool:
        """Release the lock; return False if the owner does not hold it."""
        try:
            await self.store.delete(
                CRICKET_LOCKS, {"lockKey": lock_key}, condition=F("owner") == owner
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Extend lock",
        UpdateItem(key=_KEY, condition=F("owner") == param("owner")),
        table=CRICKET_LOCKS,
        by="system",
        trigger="Long-running jobs",
        frequency="During processing",
    )
    async def extend(self, lock_key: str, owner: str, expires_at: int) -> bool:
        """Extend the lock, also an expired one that no other owner acquired."""
        actions = (
            F("expiresAt").set(expires_at),
            F("ttl").set(expires_at // 1000 + CLEANUP_SECONDS),
        )
        try:
            await self.store.update(
                CRICKET_LOCKS, {"lockKey": lock_key}, *actions, condition=F("owner") == owner
            )
        except ConditionFailed:
            return False
        return True


@dataclass(frozen=True, slots=True)
class StoreLocks:
    """The locks of one owner."""

    locks: LockRepository
    clock: Clock
    owner: str

    async def acquire(self, name: str, seconds: float) -> bool:
        now = self.clock.milliseconds()
        return await self.locks.acquire(name, self.owner, now, now + round(seconds * 1000))

    async def extend(self, name: str, seconds: float) -> bool:
        return await self.locks.extend(
            name, self.owner, self.clock.milliseconds() + round(seconds * 1000)
        )

    async def release(self, name: str) -> None:
        await self.locks.release(name, self.owner)
