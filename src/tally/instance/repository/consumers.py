"""The tables `tally-stream-consumers` and `tally-dead-letters`: where named consumers are.

An item of the first holds a consumer's position and its lock. Only the holder may move the
position, so a consumer that has lost its lock cannot undo the progress of its successor. The second
holds changes that a consumer's handler rejected repeatedly, until they are replayed or expire.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.kit.clock import Clock
from tally.kit.locks import LockLost
from tally.store.access import DeleteItem, GetItem, PutItem, Query, UpdateItem, access, param
from tally.store.changes import Change
from tally.store.errors import ConditionFailed, InvalidRequest
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

STREAM_CONSUMERS = Table(
    "tally-stream-consumers",
    partition=S("consumer"),
    attributes=(
        Attribute("consumer", "S", required=True, about="name of the consumer"),
        Attribute("owner", "S", required=True, about="UUID of the holder of its lock"),
        Attribute("expiresAt", "N", required=True, about="end of the lock, epoch milliseconds"),
        Attribute("position", "S", about="position of the last change that was handled"),
    ),
)
DEAD_LETTERS = Table(
    "tally-dead-letters",
    partition=S("consumer"),
    sort=S("id"),
    ttl="ttl",
    attributes=(
        Attribute("consumer", "S", required=True, about="name of the consumer"),
        Attribute("id", "S", required=True, about="time and position of the change"),
        Attribute("position", "S", required=True, about="position of the change"),
        Attribute("kind", "S", required=True, about="INSERT, MODIFY or REMOVE"),
        Attribute("key", "M", required=True, about="key of the changed item"),
        Attribute("old", "M", about="item before the change"),
        Attribute("new", "M", about="item after the change"),
        Attribute("changedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("sequence", "S", about="number of the change in its partition"),
        Attribute("isExpiry", "BOOL", required=True, about="the item had expired"),
        Attribute("error", "S", required=True, about="error of the last attempt"),
        Attribute("ttl", "N", required=True, about="epoch seconds"),
    ),
)
LETTER_SECONDS: Final = 30 * 86_400
MAX_LETTERS: Final = 1_000
# The owner of a lock that no instance has held yet.
NOBODY: Final = "nobody"
_MAX_ERROR: Final = 1_000
_CONSUMER_KEY: Final = {"consumer": param("consumer")}
_LETTER_KEY: Final = {"consumer": param("consumer"), "id": param("id")}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A change that was not handled, and the error of the last attempt."""

    id: str
    change: Change
    error: str


@dataclass(frozen=True, slots=True)
class ConsumerRepository:
    """Positions, locks and dead letters of named consumers. Times are milliseconds."""

    store: Store
    tables: ClassVar = (STREAM_CONSUMERS, DEAD_LETTERS)

    @access(
        "Acquire lock of stream consumer",
        UpdateItem(
            key=_CONSUMER_KEY, condition=not_exists("owner") | (F("expiresAt") < param("now"))
        ),
        table=STREAM_CONSUMERS,
        trigger="Stream consumers",
        frequency="Every 3 s per instance that does not hold it",
    )
    async def acquire(self, consumer: str, owner: str, now: int, expires_at: int) -> bool:
        try:
            await self.store.update(
                STREAM_CONSUMERS,
                {"consumer": consumer},
                F("owner").set(owner),
                F("expiresAt").set(expires_at),
                condition=not_exists("owner") | (F("expiresAt") < now),
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Extend or release lock of stream consumer",
        UpdateItem(key=_CONSUMER_KEY, condition=F("owner") == param("owner")),
        table=STREAM_CONSUMERS,
        trigger="Stream consumers",
        frequency="Every 3 s by the holder",
    )
    async def extend(self, consumer: str, owner: str, expires_at: int) -> bool:
        try:
            await self.store.update(
                STREAM_CONSUMERS,
                {"consumer": consumer},
                F("expiresAt").set(expires_at),
                condition=F("owner") == owner,
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Get position of stream consumer",
        GetItem(key=_CONSUMER_KEY),
        table=STREAM_CONSUMERS,
        trigger="Stream consumers",
        frequency="When a consumer starts",
    )
    async def get_position(self, consumer: str) -> str | None:
        item = await self.store.get(STREAM_CONSUMERS, {"consumer": consumer}, consistent=True)
        return None if item is None else item.get("position")

    @access(
        "Start stream consumer at position",
        PutItem(key=_CONSUMER_KEY),
        table=STREAM_CONSUMERS,
        by="user",
        trigger="POST /admin/webhooks, PATCH /admin/webhooks/{webhook_id}",
        frequency="Per new consumer",
    )
    async def start_at(self, consumer: str, position: str) -> None:
        """Let a consumer begin at a position; an instance that runs it loses its lock."""
        item = {"consumer": consumer, "owner": NOBODY, "expiresAt": 0, "position": position}
        await self.store.put(STREAM_CONSUMERS, item)

    @access(
        "Delete stream consumer",
        DeleteItem(key=_CONSUMER_KEY),
        table=STREAM_CONSUMERS,
        by="user",
        trigger="DELETE /admin/webhooks/{webhook_id}",
        frequency="Per consumer of a deleted webhook",
    )
    async def delete_consumer(self, consumer: str) -> None:
        """Delete a consumer's position and lock; an instance that runs it loses its lock."""
        await self.store.delete(STREAM_CONSUMERS, {"consumer": consumer})

    @access(
        "Checkpoint stream consumer",
        UpdateItem(key=_CONSUMER_KEY, condition=F("owner") == param("owner")),
        table=STREAM_CONSUMERS,
        trigger="Stream consumers",
        frequency="After handled changes, at most once per 100 changes while more are waiting",
    )
    async def checkpoint(self, consumer: str, owner: str, position: str) -> None:
        """Store the position; raise LockLost if another owner has the lock."""
        try:
            await self.store.update(
                STREAM_CONSUMERS,
                {"consumer": consumer},
                F("position").set(position),
                condition=F("owner") == owner,
            )
        except ConditionFailed as error:
            raise LockLost(consumer) from error

    @access(
        "Store dead letter",
        PutItem(key=_LETTER_KEY, requests=2),
        table=DEAD_LETTERS,
        trigger="Stream consumers",
        frequency="Per change whose handler kept failing",
    )
    async def park(self, consumer: str, change: Change, error: str, now: int) -> None:
        """Store a dead letter, without its images if they are too large or too deep together."""
        item = _letter_item(consumer, change, error, now)
        try:
            await self.store.put(DEAD_LETTERS, item)
        except InvalidRequest:
            names = item.keys() - {"old", "new"}
            await self.store.put(DEAD_LETTERS, {name: item[name] for name in names})

    @access(
        "List dead letters",
        Query(where=F("consumer") == param("consumer")),
        table=DEAD_LETTERS,
        by="user",
        trigger="Operators",
        frequency="Rare",
        bound=MAX_LETTERS,
    )
    async def list_letters(self, consumer: str) -> list[DeadLetter]:
        """Return the oldest dead letters."""
        where = F("consumer") == consumer
        items = self.store.items(DEAD_LETTERS, where, consistent=True, overflow="stop")
        return [_letter(item) async for item in items]

    @access(
        "Get dead letter",
        GetItem(key=_LETTER_KEY),
        table=DEAD_LETTERS,
        by="user",
        trigger="Operators",
        frequency="Rare",
    )
    async def get_letter(self, consumer: str, letter_id: str) -> DeadLetter | None:
        key = {"consumer": consumer, "id": letter_id}
        item = await self.store.get(DEAD_LETTERS, key, consistent=True)
        return None if item is None else _letter(item)

    @access(
        "Delete dead letter",
        DeleteItem(key=_LETTER_KEY),
        table=DEAD_LETTERS,
        by="user",
        trigger="Operators",
        frequency="Per replayed change",
    )
    async def delete_letter(self, consumer: str, letter_id: str) -> None:
        await self.store.delete(DEAD_LETTERS, {"consumer": consumer, "id": letter_id})


@dataclass(frozen=True, slots=True)
class ConsumerLocks:
    """The locks of one owner, as `kit.locks` uses them."""

    repository: ConsumerRepository
    clock: Clock
    owner: str

    async def acquire(self, name: str, seconds: float) -> bool:
        now = self.clock.milliseconds()
        return await self.repository.acquire(name, self.owner, now, now + round(seconds * 1000))

    async def extend(self, name: str, seconds: float) -> bool:
        expires_at = self.clock.milliseconds() + round(seconds * 1000)
        return await self.repository.extend(name, self.owner, expires_at)

    async def release(self, name: str) -> None:
        await self.repository.extend(name, self.owner, 0)


def _letter_item(consumer: str, change: Change, error: str, now: int) -> Item:
    changed_at = round(change.at * 1000)
    images = {"old": change.old, "new": change.new}
    return {
        "consumer": consumer,
        # The same if the change is parked again after a crash.
        "id": f"{changed_at:013}#{change.id}",
        "position": change.position,
        "kind": change.kind,
        "key": change.key,
        "changedAt": changed_at,
        # A number of DynamoDB Streams may have more digits than a number of an item.
        "sequence": str(change.sequence),
        "isExpiry": change.is_expiry,
        "error": error[:_MAX_ERROR].encode(errors="replace").decode(),
        "ttl": now // 1000 + LETTER_SECONDS,
        **{name: image for name, image in images.items() if image is not None},
    }


def _letter(item: Mapping[str, Any]) -> DeadLetter:
    change = Change(
        kind=item["kind"],
        key=item["key"],
        position=item["position"],
        at=int(item["changedAt"]) / 1000,
        old=item.get("old"),
        new=item.get("new"),
        is_expiry=item["isExpiry"],
        sequence=int(item.get("sequence", "0")),
    )
    return DeadLetter(item["id"], change, item["error"])
