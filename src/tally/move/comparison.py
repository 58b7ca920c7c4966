"""Compares a table in both stores: item counts and checksums per partition, then items.

A checksum is the sum of the digests of a partition's items, so that no store needs to read in the
order of the other. Expired items count as deleted: each store deletes them when it likes.

Servers write while a table is compared. Partitions that differ are compared again, item by item: a
change on its way to the passive store disappears or becomes another one, but a lost one remains.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import ormsgpack

from tally.kit.clock import Clock
from tally.store.api import MAX_BATCH_GET, BatchGet, Engine, Query, Scan
from tally.store.batching import chunks
from tally.store.encode import to_wire
from tally.store.expressions import Condition, F
from tally.store.schema import Table
from tally.store.sqlite.codec import pack, unpack
from tally.store.values import Item, Key

PAGE_ITEMS: Final = 500
MAX_REPORTED: Final = 1_000  # differences per table
MAX_SUSPECTED: Final = 5_000  # items that are read again at the same time
ROUNDS: Final = 3  # of further reads in which a difference must stay the same
_DIGEST_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _DIGEST_BYTES)

DifferenceKind: TypeAlias = Literal["missing", "extra", "different"]
# Of an item in the active and in the passive table; None where it does not exist.
Digests: TypeAlias = tuple[bytes | None, bytes | None]


class Checksum(NamedTuple):
    """Number of items, and the sum of their digests."""

    items: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.total:0{2 * _DIGEST_BYTES}x}"

    def plus(self, items: int, total: int) -> "Checksum":
        return Checksum(self.items + items, (self.total + total) % _MODULUS)


@dataclass(frozen=True, slots=True)
class Difference:
    """An item that is missing from, extra in or different in the passive table."""

    key: Key
    kind: DifferenceKind


@dataclass(frozen=True, slots=True)
class TableComparison:
    """The result for one table; `differences` are those of the first items found."""

    table: str
    partitions: int
    active: Checksum
    passive: Checksum
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparer:
    """Compares tables of the active and the passive store.

    `wait` returns once the changes so far should have been applied. The comparison of a table ends
    soon after `max_differences`.
    """

    active: Engine
    passive: Engine
    clock: Clock
    wait: Callable[[], Awaitable[None]]
    max_differences: int = MAX_REPORTED

    async def compare(self, table: Table) -> TableComparison:
        """Compare all partitions, and again those that differ."""
        now = self.clock.time_ns() / 1e9
        expected = await partition_checksums(self.active, table, now)
        found = await partition_checksums(self.passive, table, now)
        suspects = [
            partition
            for partition in expected.keys() | found.keys()
            if expected.get(partition) != found.get(partition)
        ]
        differences = await self._lasting_differences(table, suspects)
        return TableComparison(
            table.name, len(expected), _sum(expected), _sum(found), tuple(differences)
        )

    async def _lasting_differences(
        self, table: Table, suspects: Sequence[bytes]
    ) -> list[Difference]:
        """Compare the items of partitions until `max_differences` are found."""
        differences: list[Difference] = []
        suspected: dict[bytes, Digests] = {}
        for number, partition in enumerate(suspects, start=1):
            suspected |= await self._differing_items(table, unpack(partition)[0])
            if len(suspected) >= MAX_SUSPECTED or number == len(suspects):
                differences += await self._remaining(table, suspected)
                suspected = {}
                if len(differences) >= self.max_differences:
                    break
        return differences

    async def _remaining(self, table: Table, suspected: dict[bytes, Digests]) -> list[Difference]:
        """Return the differences that stay the same while changes are applied."""
        for _ in range(ROUNDS):
            if not suspected:
                break
            await self.wait()
            found = await self._read_again(table, [*suspected])
            suspected = {
                key: pair
                for key, pair in suspected.items()
                if found[key] == pair and pair[0] != pair[1]
            }
        return [_difference(key, pair) for key, pair in suspected.items()]

    async def _differing_items(self, table: Table, partition: Any) -> dict[bytes, Digests]:
        """Return the digests of the items that differ, by packed key."""
        where = F(table.partition.name) == partition
        # The passive table first: it should not be ahead of the active one.
        passive = await self._partition_digests(self.passive, table, where)
        active = await self._partition_digests(self.active, table, where)
        return {
            key: (active.get(key), passive.get(key))
            for key in active.keys() | passive.keys()
            if active.get(key) != passive.get(key)
        }

    async def _partition_digests(
        self, engine: Engine, table: Table, where: Condition
    ) -> dict[bytes, bytes]:
        digests: dict[bytes, bytes] = {}
        start: Item | None = None
        while True:
            query = Query(table, where, limit=PAGE_ITEMS, start=start, consistent=True)
            page = await engine.query(query)
            digests |= self._digests(table, page.items)
            start = page.next
            if start is None:
                return digests

    async def _read_again(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, Digests]:
        found: dict[bytes, Digests] = {}
        for chunk in chunks(keys, MAX_BATCH_GET):
            passive = await self._item_digests(self.passive, table, chunk)
            active = await self._item_digests(self.active, table, chunk)
            found |= {key: (active.get(key), passive.get(key)) for key in chunk}
        return found

    async def _item_digests(
        self, engine: Engine, table: Table, keys: Sequence[bytes]
    ) -> dict[bytes, bytes]:
        digests: dict[bytes, bytes] = {}
        unread: tuple[Key, ...] = tuple(map(unpack, keys))
        while unread:
            result = await engine.batch_get(BatchGet(table, unread, consistent=True))
            digests |= self._digests(table, result.items)
            unread = result.unprocessed
        return digests

    def _digests(self, table: Table, items: Iterable[Item]) -> dict[bytes, bytes]:
        """Return the digests of unexpired items by packed key."""
        now = self.clock.time_ns() / 1e9
        return {
            _packed_key(table, item): item_digest(item)
            for item in items
            if not table.is_expired(item, now)
        }


async def partition_checksums(engine: Engine, table: Table, now: float) -> dict[bytes, Checksum]:
    """Return the checksum of each partition, by its packed key."""
    checksums: dict[bytes, Checksum] = {}
    start: Item | None = None
    while True:
        page = await engine.scan(Scan(table, limit=PAGE_ITEMS, start=start, consistent=True))
        for item in page.items:
            if not table.is_expired(item, now):
                partition = pack([item[table.partition.name]])
                digest = int.from_bytes(item_digest(item), "big")
                checksums[partition] = checksums.get(partition, Checksum()).plus(1, digest)
        start = page.next
        if start is None:
            return checksums


def _packed_key(table: Table, item: Item) -> bytes:
    return pack({name: item[name] for name in table.key_names})


def item_digest(item: Mapping[str, Any]) -> bytes:
    """Return a digest that does not depend on the order of attributes, keys or set elements."""
    canonical = ormsgpack.packb(_canonical(to_wire(dict(item))))
    return hashlib.blake2b(canonical, digest_size=_DIGEST_BYTES).digest()


def _canonical(value: Any) -> Any:
    """Convert DynamoDB's JSON of a value to lists in one order."""
    ((kind, content),) = value.items()
    if kind == "M":
        return [kind, [[name, _canonical(content[name])] for name in sorted(content)]]
    if kind == "L":
        return [kind, [_canonical(element) for element in content]]
    if kind in ("SS", "NS", "BS"):
        return [kind, sorted(content)]
    return [kind, content]


def _sum(checksums: Mapping[bytes, Checksum]) -> Checksum:
    total = Checksum()
    for checksum in checksums.values():
        total = total.plus(*checksum)
    return total


def _difference(key: bytes, pair: Digests) -> Difference:
    active, passive = pair
    kind: DifferenceKind = "different"
    if passive is None:
        kind = "missing"
    elif active is None:
        kind = "extra"
    return Difference(unpack(key), kind)
