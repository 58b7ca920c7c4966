"""Table declarations: key, indexes, time to live, and the attributes that readers rely on.

    FOLLOWS = Table(
        "cricket-match-follows",
        partition=S("matchId"),
        sort=S("userId"),
        indexes=(GlobalIndex("userId-index", partition=S("userId"), projection=KEYS_ONLY),),
        ttl="expiresAt",
        attributes=(Attribute("teamId", "S"), Attribute("expiresAt", "N", required=True)),
    )

A declaration is validated on construction. The store enforces keys, indexes, TTL, and the types and
presence of declared attributes; `schema.lock` records the attributes as a contract with readers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias, get_args

from tally.store.errors import (
    InvalidKey,
    InvalidSchema,
    InvalidValue,
    ItemTooLarge,
    UnknownIndex,
)
from tally.store.values import (
    MAX_ITEM_BYTES,
    Item,
    Type,
    measure_item,
    measure_name,
    measure_value,
    type_of,
)

KeyType: TypeAlias = Literal["S", "N", "B"]
# What the records of a stream contain besides the key: DynamoDB's view types.
StreamView: TypeAlias = Literal["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"]
MAX_PARTITION_BYTES = 2048
MAX_SORT_BYTES = 1024
_FAST_PATH_CHARACTERS = 1024
_MISSING: Any = object()
MAX_GLOBAL_INDEXES = 20
MAX_LOCAL_INDEXES = 5
MAX_INCLUDED = 100
MAX_KEY_NAME_BYTES = 255
# Sets are not here: their type depends on their elements.
_PYTHON_TYPES: dict[Type, frozenset[type]] = {
    "S": frozenset({str}),
    "N": frozenset({int, Decimal}),
    "B": frozenset({bytes}),
    "BOOL": frozenset({bool}),
    "NULL": frozenset({type(None)}),
    "L": frozenset({list, tuple}),
    "M": frozenset({dict}),
    "SS": frozenset(),
    "NS": frozenset(),
    "BS": frozenset(),
}
_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}")


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One attribute of a key: its name and type."""

    name: str
    type: KeyType


def S(name: str) -> KeyPart:  # noqa: N802 - named after DynamoDB's type
    """Declare a string key attribute."""
    return KeyPart(name, "S")


def N(name: str) -> KeyPart:  # noqa: N802 - named after DynamoDB's type
    """Declare a number key attribute."""
    return KeyPart(name, "N")


def B(name: str) -> KeyPart:  # noqa: N802 - named after DynamoDB's type
    """Declare a binary key attribute."""
    return KeyPart(name, "B")


@dataclass(frozen=True, slots=True)
class Projection:
    """The attributes that an index holds besides the keys."""

    kind: Literal["ALL", "KEYS_ONLY", "INCLUDE"]
    names: tuple[str, ...] = ()


ALL = Projection("ALL")
KEYS_ONLY = Projection("KEYS_ONLY")


def include(*names: str) -> Projection:
    """Project the keys and the named attributes."""
    return Projection("INCLUDE", names)


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index. It is sparse: it omits items that lack one of its key attributes."""

    name: str
    partition: KeyPart
    sort: KeyPart | None = None
    projection: Projection = ALL
    local: bool = False


def GlobalIndex(  # noqa: N802 - reads as a class
    name: str, partition: KeyPart, sort: KeyPart | None = None, projection: Projection = ALL
) -> Index:
    """Declare a global secondary index: its own partition key, eventually consistent reads."""
    return Index(name, partition, sort, projection)


@dataclass(frozen=True, slots=True)
class LocalIndex:
    """A local secondary index: the table's partition key with another sort key."""

    name: str
    sort: KeyPart
    projection: Projection = ALL


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that readers rely on: locked in `schema.lock`, and validated on write."""

    name: str
    type: Type
    required: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as its repository declares it.

    `validated=False` accepts items that lack declared attributes or have other types, for data from
    elsewhere. With a `stream`, the store records every change; see `Store.changes`. The last four
    fields are computed once, because every operation reads them. `required` and `attribute_types`,
    the Python types by name, omit the key: the engine checks it.
    """

    name: str
    partition: KeyPart
    sort: KeyPart | None = None
    indexes: tuple[Index | LocalIndex, ...] = ()
    ttl: str | None = None
    attributes: tuple[Attribute, ...] = ()
    version: str = "1.0.0"
    stream: StreamView | None = None
    validated: bool = field(default=True, compare=False)
    by_name: Mapping[str, Index] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    key_names: tuple[str, ...] = field(init=False, repr=False, compare=False, default=())
    required: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    attribute_types: Mapping[str, frozenset[type]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        indexes = tuple(self._with_partition(index) for index in self.indexes)
        object.__setattr__(self, "indexes", indexes)
        object.__setattr__(self, "by_name", {index.name: index for index in indexes})
        object.__setattr__(self, "key_names", tuple(part.name for part in self.key))
        checked = [
            attribute
            for attribute in self.attributes
            if self.validated and attribute.name not in self.key_names
        ]
        required = frozenset(attribute.name for attribute in checked if attribute.required)
        object.__setattr__(self, "required", required)
        types = {attribute.name: _PYTHON_TYPES[attribute.type] for attribute in checked}
        object.__setattr__(self, "attribute_types", types)
        _check_table(self)

    def __hash__(self) -> int:
        return hash(self.name)

    def _with_partition(self, index: Index | LocalIndex) -> Index:
        if isinstance(index, Index):
            return index
        return Index(index.name, self.partition, index.sort, index.projection, local=True)

    @property
    def key(self) -> tuple[KeyPart, ...]:
        """The parts of the primary key."""
        return (self.partition,) if self.sort is None else (self.partition, self.sort)

    def index(self, name: str) -> Index:
        """Return the index with this name; raise UnknownIndex if there is none."""
        found = self.by_name.get(name)
        if found is None:
            names = ", ".join(self.by_name) or "none"
            raise UnknownIndex(f"table {self.name} has no index {name}; its indexes: {names}")
        return found

    def primary_key(self, item: Mapping[str, Any]) -> Item:
        """Return the primary key of an item."""
        return {name: item[name] for name in self.key_names}

    def is_expired(self, item: Mapping[str, Any], now: float) -> bool:
        """Whether the item's time to live has passed, even if the item is not deleted yet."""
        until = item.get(self.ttl) if self.ttl else None
        return until is not None and type_of(until) == "N" and until <= now


def index_key(index: Index) -> tuple[KeyPart, ...]:
    """Return the parts of an index's key."""
    return (index.partition,) if index.sort is None else (index.partition, index.sort)


def projected_names(table: Table, index: Index) -> frozenset[str]:
    """Return the attributes in an index whose projection is not ALL."""
    return frozenset(
        (*table.key_names, *(part.name for part in index_key(index)), *index.projection.names)
    )


def check_key(table: Table, key: Mapping[str, Any]) -> None:
    """Reject a key that is not exactly the table's primary key."""
    for part in table.key:
        check_key_part(table, part, key)
    if len(key) != len(table.key_names):
        extra = set(key) - set(table.key_names)
        for name in extra:
            measure_name(name)
        raise InvalidKey(f"table {table.name}: {', '.join(sorted(extra))} is not part of the key")


def check_item_keys(table: Table, item: Mapping[str, Any], size: int) -> None:
    """Reject an item with an invalid primary key or an invalid index key.

    The limit of an item's size includes its entries in local indexes.
    """
    for part in table.key:
        check_key_part(table, part, item)
    for index in table.by_name.values():
        for part in index_key(index):
            if part.name in item:
                check_key_part(table, part, item, index.name)
        if index.local and index.sort is not None and index.sort.name in item:
            size += _entry_size(table, index, item)
    if size > MAX_ITEM_BYTES:
        raise ItemTooLarge(
            f"table {table.name}: the item and its entries in local indexes have {size} bytes; the"
            f" limit is {MAX_ITEM_BYTES}"
        )


def _entry_size(table: Table, index: Index, item: Mapping[str, Any]) -> int:
    if index.projection.kind == "ALL":
        return measure_item(item)
    names = projected_names(table, index)
    return measure_item({name: value for name, value in item.items() if name in names})


def check_key_part(
    table: Table, part: KeyPart, item: Mapping[str, Any], index: str | None = None
) -> None:
    """Reject a key attribute that is missing, empty, too long or of the wrong type."""
    value = item.get(part.name, _MISSING)
    if (
        type(value) is str
        and part.type == "S"
        and 0 < len(value) <= _FAST_PATH_CHARACTERS
        and value.isascii()
    ):
        return
    where = f"table {table.name}" if index is None else f"table {table.name}, index {index}"
    if value is _MISSING:
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
    is_partition = part.name in (table.partition.name, _partition(table, index))
    check_key_size(where, part, size, is_partition=is_partition)


def check_key_size(where: str, part: KeyPart, size: int, *, is_partition: bool) -> None:
    """Reject a key value that is too long; numbers are limited by their digits."""
    limit = MAX_PARTITION_BYTES if is_partition else MAX_SORT_BYTES
    if size > limit:
        raise InvalidKey(
            f"{where}: the key attribute {part.name} has {size} bytes; the limit is {limit}"
        )


def _partition(table: Table, index: str | None) -> str | None:
    return None if index is None else table.by_name[index].partition.name


def _check_attribute_names(table: Table) -> None:
    names = [part.name for part in table.key]
    for index in table.by_name.values():
        names += [*(part.name for part in index_key(index)), *index.projection.names]
    names += [attribute.name for attribute in table.attributes]
    for name in names if table.ttl is None else (*names, table.ttl):
        try:
            measure_name(name)
        except InvalidValue as error:
            raise InvalidSchema(f"table {table.name}: {error}") from None


def _check_table(table: Table) -> None:
    for name in (table.name, *(index.name for index in table.indexes)):
        if not _NAME.fullmatch(name):
            raise InvalidSchema(
                f"{name!r} is not a valid name: 3 to 255 letters, digits, '_', '-' or '.'"
            )
    if len(table.by_name) != len(table.indexes):
        raise InvalidSchema(f"table {table.name}: index names must be unique")
    local = [index for index in table.by_name.values() if index.local]
    if len(local) > MAX_LOCAL_INDEXES or len(table.indexes) - len(local) > MAX_GLOBAL_INDEXES:
        raise InvalidSchema(
            f"table {table.name}: at most {MAX_GLOBAL_INDEXES} global and {MAX_LOCAL_INDEXES}"
            " local indexes"
        )
    if any(index.partition != table.partition for index in local):
        raise InvalidSchema(f"table {table.name}: a local index must use the table's partition key")
    if local and table.sort is None:
        raise InvalidSchema(f"table {table.name}: a local index requires a table with a sort key")
    _check_attribute_names(table)
    types: dict[str, str] = {}
    for part in (
        *table.key,
        *(part for index in table.by_name.values() for part in index_key(index)),
    ):
        if measure_name(part.name) > MAX_KEY_NAME_BYTES:
            raise InvalidSchema(
                f"table {table.name}: a key attribute name may have at most {MAX_KEY_NAME_BYTES}"
                " bytes"
            )
        if types.setdefault(part.name, part.type) != part.type:
            raise InvalidSchema(
                f"table {table.name}: the key attribute {part.name} is declared with two types"
            )
    for key in (table.key, *(index_key(index) for index in table.by_name.values())):
        if len({part.name for part in key}) != len(key):
            raise InvalidSchema(f"table {table.name}: partition key and sort key must differ")
    _check_projections(table)
    _check_attributes(table, types)
    _check_stream(table)


def _check_stream(table: Table) -> None:
    views = get_args(StreamView)
    if table.stream is not None and table.stream not in views:
        raise InvalidSchema(f"table {table.name}: stream must be None or one of {', '.join(views)}")


def _check_projections(table: Table) -> None:
    included = [name for index in table.by_name.values() for name in index.projection.names]
    if len(included) > MAX_INCLUDED:
        raise InvalidSchema(
            f"table {table.name}: its indexes may include at most {MAX_INCLUDED} attributes in"
            " total"
        )
    for index in table.by_name.values():
        names = index.projection.names
        if (index.projection.kind == "INCLUDE") != bool(names):
            raise InvalidSchema(
                f"table {table.name}, index {index.name}: only INCLUDE takes attribute names"
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
                f"table {table.name}: the TTL attribute {table.ttl} must be a number of epoch"
                " seconds"
            )
