"""Packs items without what the table and the row's key already contain.

Most items of a table have the same attributes. A shape lists their names, the names inside their
maps, and the strings that are a part of the key, such as the id of a device within a sort key. An
item of a known shape is packed as the shape's number and the remaining values; other items are
packed as a map without their key. Shapes are learned from the items and stored in the database.
They never change, so a process may cache them; a number that it does not know was added by another.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw
import msgspec
from ormsgpack import unpackb

from tally.store.errors import StorageDamaged
from tally.store.schema import Table
from tally.store.sqlite.codec import pack, restore_extension
from tally.store.sqlite.compiled_shape import CompiledShape, Restorer, Shape
from tally.store.sqlite.keys import RowKey
from tally.store.values import Item, measure_item

CREATE_SHAPES = """
CREATE TABLE IF NOT EXISTS shapes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, shape TEXT NOT NULL,
    UNIQUE (name, shape)
);
"""
MAX_SHAPES = 4_096
_MAX_NAMES = 64  # of an item or a map
_MAX_ALTERNATIVES = 4  # shapes with the same attributes, but other maps or slices
_MIN_SLICE = 8  # shorter strings are cheaper to store than to compare
_MIN_SIGHTINGS = 8  # of a shape before it is stored
_MAX_SIGHTINGS = 64  # of the same attributes before they get a shape that fits them all
_MAX_CANDIDATES = 256


def describe_shape(item: Mapping[str, Any], texts: tuple[str, str], key: frozenset[str]) -> Shape:
    """Return the most specific shape of an item."""
    rest = {name: value for name, value in item.items() if name not in key}
    return Shape(
        tuple(item),
        tuple(
            (name, tuple(value))
            for name, value in rest.items()
            if type(value) is dict and 0 < len(value) <= _MAX_NAMES
        ),
        tuple(
            (name, part, start, start + len(value))
            for name, value in rest.items()
            if type(value) is str and len(value) >= _MIN_SLICE
            for part, start in _occurrences(value, texts)
        ),
    )


def _occurrences(value: str, texts: tuple[str, str]) -> list[tuple[int, int]]:
    """Return the part of the key that contains the string, and its position, at most one."""
    found = [(part, text.find(value)) for part, text in enumerate(texts)]
    return [(part, start) for part, start in found if start >= 0][-1:]


class Shapes:
    """The shapes of a database. Threads share it; only the writer stores new ones."""

    def __init__(self, connect: Callable[[], apsw.Connection] | None = None) -> None:
        """Create it empty; `connect` opens the database when an unknown number is read."""
        self._connect = connect
        self._lock = threading.Lock()
        self._stored: dict[int, tuple[str, Shape]] = {}
        self._packers: dict[str, ItemPacker] = {}
        self._pending: list[tuple[str, Shape]] = []

    def packer(self, table: Table) -> "ItemPacker":
        """Return the packer of the table's items; every declaration with one key shares it."""
        with self._lock:
            packer = self._packers.get(table.name)
            if packer is None or packer.key != table.key:
                packer = self._packers[table.name] = ItemPacker(table, self)
                for number, (name, shape) in self._stored.items():
                    if name == table.name:
                        packer.learn(number, shape)
        return packer

    @property
    def has_room(self) -> bool:
        return len(self._stored) + len(self._pending) < MAX_SHAPES

    def propose(self, name: str, shape: Shape) -> None:
        """Store a shape with the next group of writes."""
        self._pending.append((name, shape))

    def load(self, connection: apsw.Connection) -> None:
        """Read the stored shapes."""
        rows: list[Any] = connection.execute("SELECT number, name, shape FROM shapes").fetchall()
        with self._lock:
            for number, name, text in rows:
                if number not in self._stored:
                    shape = msgspec.json.decode(text, type=Shape)
                    self._stored[number] = name, shape
                    if name in self._packers:
                        self._packers[name].learn(number, shape)

    def reload(self) -> None:
        """Read the shapes that other processes stored."""
        if self._connect is not None:
            connection = self._connect()
            try:
                self.load(connection)
            finally:
                connection.close()

    def store_pending(self, connection: apsw.Connection) -> bool:
        """Write the proposed shapes; return whether there were any.

        They are used after the commit, when `load` is called.
        """
        if not self._pending:
            return False
        pending, self._pending = self._pending, []
        connection.executemany(
            "INSERT OR IGNORE INTO shapes (name, shape) VALUES (?, ?)",
            [(name, msgspec.json.encode(shape).decode()) for name, shape in pending],
        )
        return True


class ItemPacker:
    """Packs and unpacks the items of one table."""

    def __init__(self, table: Table, shapes: Shapes) -> None:
        self.key = table.key
        self._name = table.name
        self._shapes = shapes
        # String keys are in the key columns; the encoding of other types cannot be reversed.
        self._key = tuple(
            (part.name, position) for position, part in enumerate(table.key) if part.type == "S"
        )
        self.key_names = frozenset(name for name, _ in self._key)
        self._restore_key = _key_restorer(self._key)
        self._by_attributes: dict[tuple[str, ...], list[CompiledShape]] = {}
        self._by_number: dict[int, CompiledShape] = {}
        self._restorers: dict[int, Restorer] = {}  # of the shapes that were read
        self._sightings: Counter[Shape | tuple[str, ...]] = Counter()
        self._lock = threading.Lock()

    def learn(self, number: int, shape: Shape) -> None:
        """Use a stored shape."""
        compiled = self._by_number[number] = CompiledShape(number, shape, self._key)
        alternatives = self._by_attributes.get(shape.attributes, [])
        # A shape without maps and slices fits every item, so it is tried last.
        is_specific = bool(shape.maps or shape.slices)
        self._by_attributes[shape.attributes] = (
            [compiled, *alternatives] if is_specific else [*alternatives, compiled]
        )

    def shapes(self, attributes: tuple[str, ...]) -> list[CompiledShape]:
        """Return the known shapes of items with these attributes, in this order."""
        return self._by_attributes.get(attributes, [])

    def texts(self, item: Mapping[str, Any]) -> tuple[str, str]:
        """Return the strings of an item's key; an empty string for other types."""
        found = ["", ""]
        for name, position in self._key:
            found[position] = item[name]
        return found[0], found[1]

    def read(self, item: Mapping[str, Any]) -> tuple[list[Any] | None, int]:
        """Validate an item; return its values, if it has a known shape, and its size."""
        for shape in self._by_attributes.get(tuple(item), ()) if type(item) is dict else ():
            found = shape.read(item)
            if found is not None:
                return found
        return None, measure_item(item)

    def pack(self, item: Mapping[str, Any], values: list[Any] | None = None) -> bytes:
        """Pack a valid item without its key; `values` are those that `read` returned."""
        if values is not None:
            return pack(values)
        omitted = self.key_names
        return pack({name: value for name, value in item.items() if name not in omitted})

    def observe_packed(self, item: Mapping[str, Any], packed: bytes) -> None:
        """Count an item of a request that is valid as a whole, if it was packed as a map."""
        if packed[0] & 0xF0 == 0x80 or packed[0] >= 0xDE:  # MessagePack's headers of maps
            self.observe(item)

    def key_of(self, key: RowKey) -> Item:
        """Return the strings of a row's key, by attribute."""
        return {name: key[position].decode() for name, position in self._key}

    def unpack(self, packed: bytes, key: RowKey) -> Item:
        """Unpack an item; its key comes from the row."""
        try:
            values = unpackb(packed, ext_hook=restore_extension)
            if type(values) is list:
                restore = self._restorers.get(values[0]) or self._compile_restorer(values[0])
                return restore(values, key)
            item: Item = self._restore_key(key) | values
            return item
        except (ValueError, TypeError, LookupError) as error:
            raise StorageDamaged(f"a stored item is damaged: {error!r}") from error

    def observe(self, item: Mapping[str, Any], count: int = 1) -> None:
        """Count items of an unknown shape, and propose frequent shapes.

        Attributes whose maps or strings keep changing get a shape that fits them all.
        """
        if len(item) > _MAX_NAMES or not self._shapes.has_room:
            return
        attributes = tuple(item)
        is_open = len(self.shapes(attributes)) < _MAX_ALTERNATIVES
        shape = describe_shape(item, self.texts(item), self.key_names)
        with self._lock:
            self._sightings[attributes] += count
            self._sightings[shape] += count
            if is_open and self._sightings[shape] >= _MIN_SIGHTINGS:
                self._shapes.propose(self._name, shape)
                self._sightings.clear()
            elif self._sightings[attributes] >= _MAX_SIGHTINGS:
                self._shapes.propose(self._name, Shape(attributes))
                self._sightings.clear()
            elif len(self._sightings) > _MAX_CANDIDATES:
                self._sightings.clear()

    def _compile_restorer(self, number: int) -> Restorer:
        """Compile the restorer of a shape, which another process may have added."""
        if number not in self._by_number:
            self._shapes.reload()
        restore = self._restorers[number] = self._by_number[number].compile_restorer()
        return restore


def _key_restorer(key: Sequence[tuple[str, int]]) -> Callable[[RowKey], Item]:
    """Return a function that reads the string keys of a row; `key` has their positions."""
    if len(key) == 1:
        ((name, position),) = key
        return lambda row: {name: row[position].decode()}
    if len(key) == 2:
        (first, _), (second, _) = key
        return lambda row: {first: row[0].decode(), second: row[1].decode()}
    return lambda _row: {}
