"""How a table is declared: its key, its indexes, its time to live, and the attributes that its readers rely on.

    FOLLOWS = Table(
        "cricket-match-follows",
        partition=S("matchId"),
        sort=S("userId"),
        indexes=(Global("userId-index", partition=S("userId"), sort=S("matchId"), projection=KEYS_ONLY),),
        ttl="expiresAt",
        attributes=(Attribute("teamId", "S"), Attribute("expiresAt", "N", required=True)),
    )

A declaration is checked when it is made. The store enforces keys, indexes and TTL; the attributes
are the contract that `schema.lock` keeps.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tally.store.errors import InvalidKey, InvalidSchema, UnknownIndex
from tally.store.values import Item, Type, measure_value, type_of

KeyType: TypeAlias = Literal["S", "N", "B"]
MAX_PARTITION_BYTES = 2048
MAX_SORT_BYTES = 1024
_SURELY_SHORT = 1024
_NOTHING: Any = object()
MAX_GLOBAL_INDEXES = 20
MAX_LOCAL_INDEXES = 5
MAX_INCLUDED = 100
MAX_KEY_NAME_BYTES = 255
_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}")


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One attribute of a key: its name and its type."""

    name: str
    type: KeyType


def S(name: str) -> KeyPart:  # noqa: N802 - named after DynamoDB's type
    """A string key attribute."""
    return KeyPart(name, "S")


def N(name: str) -> KeyPart:  # noqa: N802 - named after DynamoDB's type
    """A number key attribute."""
    return KeyPart(name, "N")


def B(name: str) -> KeyPart:  # noqa: N802 - named after DynamoDB's type
    """A binary key attribute."""
    return KeyPart(name, "B")


@dataclass(frozen=True, slots=True)
class Projection:
    """What an index carries of an item besides the keys."""

    kind: Literal["ALL", "KEYS_ONLY", "INCLUDE"]
    names: tuple[str, ...] = ()


ALL = Projection("ALL")
KEYS_ONLY = Projection("KEYS_ONLY")


def include(*names: str) -> Projection:
    """A projection of the keys and the named attributes."""
    return Projection("INCLUDE", names)


@dataclass(frozen=True, slots=True)
class Index:
    """A second order of the same items.

    It is sparse: an item without all of its key attributes is not in it.
    """

    name: str
    partition: KeyPart
    sort: KeyPart | None = None
    projection: Projection = ALL
    local: bool = False


def GlobalIndex(  # noqa: N802 - reads as a declaration
    name: str, partition: KeyPart, sort: KeyPart | None = None, projection: Projection = ALL
) -> Index:
    """A global secondary index: its own partition key, read eventually."""
    return Index(name, partition, sort, projection)


@dataclass(frozen=True, slots=True)
class LocalIndex:
    """A local secondary index: the table's partition key with another sort key.

    The table fills in the partition.
    """

    name: str
    sort: KeyPart
    projection: Projection = ALL


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that readers rely on: part of the locked contract, not enforced on write."""

    name: str
    type: Type
    required: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as its repository declares it."""

    name: str
    partition: KeyPart
    sort: KeyPart | None = None
    indexes: tuple[Index | LocalIndex, ...] = ()
    ttl: str | None = None
    attributes: tuple[Attribute, ...] = ()
    version: str = "1.0.0"
    by_name: Mapping[str, Index] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    key_names: tuple[str, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        indexes = tuple(self._own(index) for index in self.indexes)
        object.__setattr__(self, "indexes", indexes)
        object.__setattr__(self, "by_name", {index.name: index for index in indexes})
        object.__setattr__(self, "key_names", tuple(part.name for part in self.key))
        _check_table(self)

    def __hash__(self) -> int:
        return hash(self.name)

    def _own(self, index: Index | LocalIndex) -> Index:
        if isinstance(index, Index):
            return index
        return Index(index.name, self.partition, index.sort, index.projection, local=True)

    @property
    def key(self) -> tuple[KeyPart, ...]:
        """The parts of the primary key."""
        return (self.partition,) if self.sort is None else (self.partition, self.sort)

    def index(self, name: str) -> Index:
        """The index of that name."""
        found = self.by_name.get(name)
        if found is None:
            have = ", ".join(self.by_name) or "none"
            raise UnknownIndex(f"table {self.name} has no index {name}; it has {have}")
        return found

    def key_of(self, item: Mapping[str, Any]) -> Item:
        """The primary key of an item."""
        return {name: item[name] for name in self.key_names}

    def expired(self, item: Mapping[str, Any], now: float) -> bool:
        """Whether the item's time to live has passed, whether or not anyone has swept it away."""
        until = item.get(self.ttl) if self.ttl else None
        return until is not None and type_of(until) == "N" and until <= now


def index_key(index: Index) -> tuple[KeyPart, ...]:
    """The parts of an index's own key."""
    return (index.partition,) if index.sort is None else (index.partition, index.sort)


def projected_names(table: Table, index: Index) -> frozenset[str]:
    """The attributes that an index with a projection other than ALL carries."""
    return frozenset(
        (*table.key_names, *(part.name for part in index_key(index)), *index.projection.names)
    )


def check_key(table: Table, key: Mapping[str, Any]) -> None:
    """Refuse a key that is not exactly the table's primary key."""
    for part in table.key:
        check_key_part(table, part, key)
    if len(key) != len(table.key_names):
        extra = ", ".join(sorted(set(key) - set(table.key_names)))
        raise InvalidKey(f"table {table.name}: {extra} is not part of the key")


def check_item_keys(table: Table, item: Mapping[str, Any]) -> None:
    """Refuse an item without a good primary key, or with an index key of the wrong type."""
    for part in table.key:
        check_key_part(table, part, item)
    for index in table.by_name.values():
        for part in index_key(index):
            if part.name in item:
                check_key_part(table, part, item, index.name)


def check_key_part(
    table: Table, part: KeyPart, item: Mapping[str, Any], index: str | None = None
) -> None:
    """Refuse a key attribute that is missing, of the wrong type, empty or too long."""
    value = item.get(part.name, _NOTHING)
    if (
        type(value) is str
        and part.type == "S"
        and 0 < len(value) <= _SURELY_SHORT
        and value.isascii()
    ):
        return
    where = f"table {table.name}" if index is None else f"table {table.name}, index {index}"
    if value is _NOTHING:
        raise InvalidKey(f"{where}: the key attribute {part.name} is missing")
    if type_of(value) != part.type:
        raise InvalidKey(
            f"{where}: the key attribute {part.name} is of type {part.type}, not {type_of(value)}"
        )
    size = measure_value(value, part.name)
    if part.type == "N":
        return
    if not size:
        raise InvalidKey(f"{where}: the key attribute {part.name} is empty")
    most = (
        MAX_PARTITION_BYTES
        if part.name in (table.partition.name, _partition(table, index))
        else MAX_SORT_BYTES
    )
    if size > most:
        raise InvalidKey(
            f"{where}: the key attribute {part.name} has {size} bytes; at most {most} fit"
        )


def _partition(table: Table, index: str | None) -> str | None:
    return None if index is None else table.by_name[index].partition.name


def _check_table(table: Table) -> None:
    for name in (table.name, *(index.name for index in table.indexes)):
        if not _NAME.fullmatch(name):
            raise InvalidSchema(
                f"{name!r} is no table or index name: 3 to 255 of letters, digits, '_', '-' and '.'"
            )
    if len(table.by_name) != len(table.indexes):
        raise InvalidSchema(f"table {table.name}: two indexes have one name")
    local = [index for index in table.by_name.values() if index.local]
    if len(local) > MAX_LOCAL_INDEXES or len(table.indexes) - len(local) > MAX_GLOBAL_INDEXES:
        raise InvalidSchema(
            f"table {table.name}: at most {MAX_GLOBAL_INDEXES} global and {MAX_LOCAL_INDEXES} local indexes"
        )
    if any(index.partition != table.partition for index in local):
        raise InvalidSchema(f"table {table.name}: a local index has the table's partition key")
    if local and table.sort is None:
        raise InvalidSchema(f"table {table.name}: a local index wants a table with a sort key")
    types: dict[str, str] = {}
    for part in (
        *table.key,
        *(part for index in table.by_name.values() for part in index_key(index)),
    ):
        if not 0 < len(part.name.encode()) <= MAX_KEY_NAME_BYTES:
            raise InvalidSchema(
                f"table {table.name}: a key attribute's name has 1 to {MAX_KEY_NAME_BYTES} bytes"
            )
        if types.setdefault(part.name, part.type) != part.type:
            raise InvalidSchema(
                f"table {table.name}: the key attribute {part.name} is declared with two types"
            )
    for key in (table.key, *(index_key(index) for index in table.by_name.values())):
        if len({part.name for part in key}) != len(key):
            raise InvalidSchema(
                f"table {table.name}: one attribute cannot be both partition and sort key"
            )
    _check_projections(table)
    _check_attributes(table, types)


def _check_projections(table: Table) -> None:
    included = [name for index in table.by_name.values() for name in index.projection.names]
    if len(included) > MAX_INCLUDED:
        raise InvalidSchema(
            f"table {table.name}: its indexes include at most {MAX_INCLUDED} attributes together"
        )
    for index in table.by_name.values():
        names = index.projection.names
        if (index.projection.kind == "INCLUDE") != bool(names):
            raise InvalidSchema(
                f"table {table.name}, index {index.name}: INCLUDE names attributes, ALL and KEYS_ONLY do not"
            )
        if len(set(names)) != len(names):
            raise InvalidSchema(
                f"table {table.name}, index {index.name}: an attribute is included twice"
            )


def _check_attributes(table: Table, key_types: dict[str, str]) -> None:
    names = [attribute.name for attribute in table.attributes]
    if len(set(names)) != len(names):
        raise InvalidSchema(f"table {table.name}: an attribute is declared twice")
    for attribute in table.attributes:
        if key_types.get(attribute.name, attribute.type) != attribute.type:
            raise InvalidSchema(
                f"table {table.name}: {attribute.name} is a key of type {key_types[attribute.name]}"
            )
        if attribute.name == table.ttl and attribute.type != "N":
            raise InvalidSchema(
                f"table {table.name}: the TTL attribute {table.ttl} must be a number of epoch seconds"
            )
