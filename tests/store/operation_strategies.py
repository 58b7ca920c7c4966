"""Hypothesis strategies for tables and sequences of operations: the input of the differential test.

Keys come from small pools, so that operations meet, and are hard to order: strings outside of the
basic plane, numbers of all signs and magnitudes, binaries of all bytes. Known errors of an emulator
(`differences.py`) are excluded, each with a reason.
"""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Check,
    Delete,
    Get,
    Operation,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
    Write,
)
from tally.store.expressions import (
    Add,
    BeginsWith,
    Between,
    Compare,
    Condition,
    F,
    Literal,
    Path,
    Remove,
    Set,
)
from tally.store.schema import (
    ALL,
    KEYS_ONLY,
    B,
    GlobalIndex,
    Index,
    KeyPart,
    KeyType,
    LocalIndex,
    N,
    Projection,
    S,
    Table,
    include,
)
from tally.store.validate_expressions import attribute_names
from tally.store.values import Item, Key
from tests.store.strategies import NAMES, conditions, first_of_each, items, paths, updates

# The jar of 2020 knows no empty strings and binaries.
SMALLEST = 1
PARTITIONS: dict[KeyType, tuple[Any, ...]] = {
    "S": ("p", "pp"),
    "N": (1, Decimal("-0.5")),
    "B": (b"p", b"\x00\xff"),
}
# Its begins_with on binaries is wrong from 0xFF on, so these end at 0xFE.
SORTS: dict[KeyType, tuple[Any, ...]] = {
    "S": ("a", "ab", "abc", "b", "B", "é", "\uffff", "😀"),
    "N": (0, 1, Decimal("1.5"), 10, -1, Decimal("-1.5"), Decimal("1E-7"), 10**30),
    "B": (b"\x00", b"\x00\x00", b"a", b"ab", b"\x7f", b"\x80", b"\xfe"),
}
KEY_TYPES: tuple[KeyType, ...] = ("S", "N", "B")
PROJECTIONS = (ALL, KEYS_ONLY, include("a", "map"))


@st.composite
def tables(draw: st.DrawFn, name: str) -> Table:
    """A table with any key and up to four indexes."""
    partition = KeyPart("id", draw(st.sampled_from(KEY_TYPES)))
    sort = draw(st.none() | st.builds(KeyPart, st.just("at"), st.sampled_from(KEY_TYPES)))
    types = {name: draw(st.sampled_from(KEY_TYPES)) for name in ("g", "h", "l")}
    indexes: list[Index | LocalIndex] = []
    for number in range(draw(st.integers(0, 2))):
        part = KeyPart("gh"[number], types["gh"[number]])
        second = draw(
            st.sampled_from(
                (None, KeyPart("l", types["l"]), sort, KeyPart("hg"[number], types["hg"[number]]))
            )
        )
        indexes.append(GlobalIndex(f"global-{number}", part, second, draw(_projections())))
    if sort is not None and draw(st.booleans()):
        indexes.append(LocalIndex("local-l", KeyPart("l", types["l"]), draw(_projections())))
    if sort is not None and draw(st.booleans()):
        indexes.append(LocalIndex("local-g", KeyPart("g", types["g"]), draw(_projections())))
    return Table(name, partition, sort, tuple(indexes))


def _projections() -> SearchStrategy[Projection]:
    return st.sampled_from(PROJECTIONS)


def shapes() -> tuple[Table, ...]:
    """A few tables that cover all features, created once and used for most examples."""
    return (
        Table(
            "shape-strings",
            S("id"),
            S("at"),
            (
                GlobalIndex("global-0", S("g"), N("l"), ALL),
                GlobalIndex("global-1", N("h"), S("at"), include("a", "map")),
                LocalIndex("local-l", N("l"), KEYS_ONLY),
            ),
        ),
        Table(
            "shape-numbers",
            N("id"),
            N("at"),
            (
                GlobalIndex("global-0", B("g"), None, KEYS_ONLY),
                LocalIndex("local-l", S("l"), ALL),
                LocalIndex("local-h", B("h"), include("a")),
            ),
        ),
        Table("shape-binaries", B("id"), B("at"), (GlobalIndex("global-0", N("g"), B("l"), ALL),)),
        Table(
            "shape-plain",
            S("id"),
            None,
            (GlobalIndex("global-0", S("g"), None, include("name", "list")),),
        ),
    )


class TableStrategies:
    """Strategies for one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.index_parts = {
            part.name: part
            for index in table.by_name.values()
            for part in (index.partition, index.sort)
            if part is not None and part.name not in table.key_names
        }

    def keys(self) -> SearchStrategy[Key]:
        """A primary key."""
        return st.fixed_dictionaries({part.name: self._values_of(part) for part in self.table.key})

    def items(self) -> SearchStrategy[Item]:
        """A complete item, which is in most indexes."""
        optional = {part.name: self._values_of(part) for part in self.index_parts.values()}
        return st.builds(
            lambda key, index_keys, rest: {**key, **index_keys, **rest},
            self.keys(),
            st.fixed_dictionaries({}, optional=optional),
            items(SMALLEST),
        )

    def examples(self) -> SearchStrategy[tuple[Table, list[Operation]]]:
        """The table and a sequence of operations."""
        return self.operations().map(lambda operations: (self.table, operations))

    def operations(self) -> SearchStrategy[list[Operation]]:
        """A sequence that starts with a few puts."""
        puts = st.lists(self._build(Put, self.items()), max_size=4)
        return st.builds(
            lambda first, rest: [*first, *rest],
            puts,
            st.lists(self.operation(), min_size=1, max_size=8),
        )

    def operation(self) -> SearchStrategy[Operation]:
        """Any operation; single writes and queries are more frequent."""
        return st.one_of(
            self._writes(returning=True),
            self._writes(returning=True),
            self._queries(),
            self._queries(),
            self._build(Get, self.keys(), self._projection(), st.booleans()),
            self._scans(),
            self._batches(),
            self._transactions(),
            self._unique(self.keys(), 4).map(
                lambda keys: BatchGet(self.table, keys, consistent=True)
            ),
            self._unique(self.keys(), 4).map(
                lambda keys: TransactionGet(tuple(Get(self.table, key) for key in keys))
            ),
        )

    def _build(self, kind: Any, *parts: SearchStrategy[Any]) -> SearchStrategy[Any]:
        return st.tuples(*parts).map(lambda drawn: kind(self.table, *drawn))

    def _values_of(self, part: KeyPart) -> SearchStrategy[Any]:
        first = part.name == self.table.partition.name
        return st.sampled_from(PARTITIONS[part.type] if first else SORTS[part.type])

    def _conditions(self) -> SearchStrategy[Condition | None]:
        return st.none() | st.none() | conditions(SMALLEST)

    def _projection(self) -> SearchStrategy[tuple[Path, ...]]:
        names = (*NAMES, *self.table.key_names, *self.index_parts)
        places = st.one_of(st.sampled_from(names).map(lambda name: Path((name,))), paths())
        return st.just(()) | st.lists(places, min_size=1, max_size=3).map(
            lambda drawn: first_of_each(drawn, lambda path: path.parts[0])
        )

    def _actions(self) -> SearchStrategy[tuple[Any, ...]]:
        """Update actions that keep the type of index keys, which the jar does not validate."""
        moves = [
            step
            for part in self.index_parts.values()
            for step in (
                st.builds(
                    Set, st.just(Path((part.name,))), st.builds(Literal, self._values_of(part))
                ),
                st.just(Remove(Path((part.name,)))),
                *(
                    [
                        st.builds(
                            Add, st.just(Path((part.name,))), st.builds(Literal, st.integers(-2, 2))
                        )
                    ]
                    if part.type == "N"
                    else []
                ),
            )
        ]
        if not moves:
            return updates(SMALLEST)
        moved = st.one_of(*moves)
        return st.one_of(
            updates(SMALLEST),
            moved.map(lambda move: (move,)),
            st.builds(lambda one, more: (one, *more), moved, updates(SMALLEST)),
        )

    def _writes(self, *, returning: bool) -> SearchStrategy[Any]:
        old = st.sampled_from(("NONE", "ALL_OLD")) if returning else st.just("NONE")
        any_returns = ("NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW")
        new = st.sampled_from(any_returns) if returning else st.just("NONE")
        condition = self._conditions()
        return st.one_of(
            self._build(Put, self.items(), condition, old),
            self._build(Update, self.keys(), self._actions(), condition, new),
            self._build(Update, self.keys(), self._actions(), condition, new),
            self._build(Delete, self.keys(), condition, old),
        )

    def _unique(self, keys: SearchStrategy[Any], most: int) -> SearchStrategy[tuple[Any, ...]]:
        return st.lists(keys, min_size=1, max_size=most).map(
            lambda drawn: first_of_each(drawn, self._identity)
        )

    def _identity(self, thing: Any) -> tuple[Any, ...]:
        key = (
            thing
            if isinstance(thing, dict)
            else thing.item
            if isinstance(thing, Put)
            else thing.key
        )
        return tuple(key[name] for name in self.table.key_names)

    def _batches(self) -> SearchStrategy[BatchWrite]:
        def build(items: tuple[Item, ...], deleted: int) -> BatchWrite:
            return BatchWrite(
                self.table,
                items[deleted:],
                tuple(self.table.primary_key(item) for item in items[:deleted]),
            )

        return st.builds(build, self._unique(self.items(), 4), st.integers(0, 2))

    def _transactions(self) -> SearchStrategy[Transaction]:
        """Transactions with updates that are valid for any item.

        The jar returns no reason otherwise.
        """
        safe = st.sampled_from(
            (
                (F("touched").set(1),),
                (F("b").set("text"), F("list").remove()),
                *(
                    (F("touched").set(1), F(part.name).remove())
                    for part in self.index_parts.values()
                ),
            )
        )
        writes: SearchStrategy[Write] = st.one_of(
            self._build(Put, self.items(), self._conditions()),
            self._build(Update, self.keys(), safe, self._conditions()),
            self._build(Delete, self.keys(), self._conditions()),
            self._build(Check, self.keys(), conditions(SMALLEST)),
        )
        return self._unique(writes, 5).map(Transaction)

    def _sources(self) -> SearchStrategy[Index | None]:
        sources = (None, *self.table.by_name.values())
        return st.integers(0, len(sources) - 1).map(lambda position: sources[position])

    @staticmethod
    def _sort_tests(part: KeyPart) -> SearchStrategy[Condition]:
        pool = SORTS[part.type]
        path, value = st.just(Path((part.name,))), st.sampled_from(pool).map(Literal)
        tests: list[SearchStrategy[Condition]] = [
            st.builds(Compare, st.sampled_from(("=", "<", "<=", ">", ">=")), path, value),
            st.tuples(st.sampled_from(pool), st.sampled_from(pool))
            .map(lambda pair: sorted(pair, key=_order))
            .map(lambda pair: Between(Path((part.name,)), Literal(pair[0]), Literal(pair[1]))),
        ]
        if part.type != "N":
            # In an index, the jar ignores case when it searches for a prefix.
            prefixes = [candidate for candidate in pool if candidate not in ("b", "B")]
            tests.append(st.builds(BeginsWith, path, st.sampled_from(prefixes).map(Literal)))
        return st.one_of(*tests)

    def _filters(self, index: Index | None) -> SearchStrategy[Condition | None]:
        """A valid query filter: no keys, and only attributes that the index projects."""
        if index is None or index.projection.kind == "ALL":
            return self._conditions()
        carried = set(index.projection.names)
        return self._conditions().map(
            lambda test: test if test is not None and attribute_names(test) <= carried else None
        )

    @st.composite
    @staticmethod
    def _query(draw: st.DrawFn, make: "TableStrategies") -> Query:
        index = draw(make._sources())
        partition, sort = (index or make.table).partition, (index or make.table).sort
        where: Condition = F(partition.name) == draw(make._values_of(partition))
        if sort is not None and draw(st.booleans()):
            where = where & draw(make._sort_tests(sort))
        shown = draw(make._projection()) if index is None or index.projection.kind == "ALL" else ()
        return Query(
            make.table,
            where,
            index.name if index else None,
            draw(make._filters(index)),
            shown,
            forward=draw(st.booleans()),
            limit=draw(st.none() | st.integers(1, 3)),
            consistent=index is None and draw(st.booleans()),
        )

    def _queries(self) -> SearchStrategy[Query]:
        return self._query(self)

    def _scans(self) -> SearchStrategy[Scan]:
        """Scans with filters on the table only, because the jar's index scans see too much."""

        def build(index: Index | None, test: Condition | None, limit: int | None) -> Scan:
            return Scan(
                self.table, index.name if index else None, None if index else test, limit=limit
            )

        return st.builds(build, self._sources(), self._conditions(), st.none() | st.integers(1, 3))


def _order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
