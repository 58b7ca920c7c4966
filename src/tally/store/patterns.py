"""The words of an access pattern: which operations it makes, on which table, for whom, how often and up to what bound.

    Query                          on the table           Query + DeleteItem + UpdateItem    several, in one method
    Query.on("live-index")         on an index            PutItem.conditional                never without a condition
    Scan.filtered                  with a filter          GetItem.noted("on cache miss")     a remark for the documents

A pattern is checked when it is declared: its indexes are there, and a Scan states its bound.
`access.py` puts it on a repository's method; the store holds the method to it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from tally.store.errors import AccessViolation
from tally.store.schema import Table

By: TypeAlias = Literal["user", "system", "both"]
UseKey: TypeAlias = tuple[str, str | None]

_READS = frozenset({"GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems"})
_ON_INDEX = frozenset({"Query", "Scan"})
_CONDITIONAL = frozenset({"PutItem", "UpdateItem", "DeleteItem"})


@dataclass(frozen=True, slots=True)
class OperationUse:
    """One operation of a pattern, under DynamoDB's name of it."""

    name: str
    index: str | None = None
    conditional: bool = False
    filtered: bool = False
    note: str = ""

    @property
    def key(self) -> UseKey:
        """What the store looks a call up by."""
        return self.name, self.index

    @property
    def reads_only(self) -> bool:
        """Whether this leaves everything as it was."""
        return self.name in _READS

    def label(self, table: Table) -> str:
        """As the documents write it: `Query (GSI)`, `PutItem (conditional)`, `Scan + filter`."""
        remarks = [self.note] if self.note else []
        if self.conditional:
            remarks.insert(0, "conditional")
        if self.index is not None:
            remarks.insert(0, "LSI" if table.index(self.index).local else "GSI")
        return (
            self.name
            + (f" ({', '.join(remarks)})" if remarks else "")
            + (" + filter" if self.filtered else "")
        )


@dataclass(frozen=True, slots=True)
class PatternOperation:
    """What a pattern does: one operation, or several joined with `+`."""

    uses: tuple[OperationUse, ...]

    def __add__(self, other: "PatternOperation") -> "PatternOperation":
        return PatternOperation(self.uses + other.uses)

    def on(self, index: str) -> "PatternOperation":
        """The same, on an index of the table."""
        return self._each(lambda use: replace(use, index=index), _ON_INDEX, "goes to an index")

    @property
    def conditional(self) -> "PatternOperation":
        """The same, and never without a condition."""
        return self._each(
            lambda use: replace(use, conditional=True), _CONDITIONAL, "takes a condition"
        )

    @property
    def filtered(self) -> "PatternOperation":
        """The same, with a filter."""
        return self._each(lambda use: replace(use, filtered=True), _ON_INDEX, "takes a filter")

    def noted(self, note: str) -> "PatternOperation":
        """The same, with a remark for the documents."""
        return PatternOperation(tuple(replace(use, note=note) for use in self.uses))

    def _each(
        self, change: Callable[[OperationUse], OperationUse], can: frozenset[str], what: str
    ) -> "PatternOperation":
        for use in self.uses:
            if use.name not in can:
                raise AccessViolation(f"{use.name} never {what}; {', '.join(sorted(can))} do")
        return PatternOperation(tuple(change(use) for use in self.uses))


GetItem = PatternOperation((OperationUse("GetItem"),))
PutItem = PatternOperation((OperationUse("PutItem"),))
UpdateItem = PatternOperation((OperationUse("UpdateItem"),))
DeleteItem = PatternOperation((OperationUse("DeleteItem"),))
Query = PatternOperation((OperationUse("Query"),))
Scan = PatternOperation((OperationUse("Scan"),))
BatchGetItem = PatternOperation((OperationUse("BatchGetItem"),))
BatchWriteItem = PatternOperation((OperationUse("BatchWriteItem"),))
TransactWriteItems = PatternOperation((OperationUse("TransactWriteItems"),))
TransactGetItems = PatternOperation((OperationUse("TransactGetItems"),))


@dataclass(frozen=True, slots=True, eq=False)
class AccessPattern:
    """An access pattern as it was declared. Two are never equal, so that each has its own counters.

    `bound` is the most items that one call may read, and the most that it may write; None where one
    page or one item is all that there ever is. `tables` are those that a transaction touches
    besides `table`.
    """

    name: str
    operation: PatternOperation
    table: Table
    key: str = ""
    by: By = "system"
    trigger: str = ""
    frequency: str = ""
    bound: int | None = None
    tables: tuple[Table, ...] = ()
    allowed: Mapping[UseKey, OperationUse] = field(init=False, repr=False, default_factory=dict)
    table_names: frozenset[str] = field(init=False, repr=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed", {use.key: use for use in self.operation.uses})
        object.__setattr__(
            self, "table_names", frozenset(table.name for table in (self.table, *self.tables))
        )
        _check_pattern(self)

    @property
    def operation_label(self) -> str:
        """As the documents write it: `Query + DeleteItem + UpdateItem`, and which other tables a transaction touches."""
        others = f" with {', '.join(table.name for table in self.tables)}" if self.tables else ""
        return " + ".join(use.label(self.table) for use in self.operation.uses) + others

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes that it reads, each once."""
        return tuple(
            dict.fromkeys(use.index for use in self.operation.uses if use.index is not None)
        )

    @property
    def reads_only(self) -> bool:
        """Whether nothing is written."""
        return all(use.reads_only for use in self.operation.uses)


def _check_pattern(pattern: AccessPattern) -> None:
    for problem in _problems(pattern):
        raise AccessViolation(f"access pattern {pattern.name!r}: {problem}")


def _problems(pattern: AccessPattern) -> Iterator[str]:
    if not pattern.name.strip():
        yield "it has no name"
    if len(pattern.allowed) != len(pattern.operation.uses):
        yield "an operation is declared twice"
    for index in pattern.indexes:
        if index not in pattern.table.by_name:
            yield f"table {pattern.table.name} has no index {index}"
    if pattern.bound is not None and pattern.bound < 1:
        yield "a bound is a number of items from 1 up"
    if pattern.bound is None and any(use.name == "Scan" for use in pattern.operation.uses):
        yield "a Scan must state its bound"
