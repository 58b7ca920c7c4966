"""Access pattern declarations: operations, table, caller, frequency and bound.

    Query                     on the table     Query + DeleteItem                   either operation
    Query.on("live-index")    on an index      PutItem.conditional                  conditional only
    Scan.filtered             with a filter    GetItem.with_note("on cache miss")   a remark

A pattern is validated when it is declared: its indexes must exist, and a Scan needs a bound.
`access.py` attaches it to a repository method.
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
    """One operation of a pattern, by DynamoDB's name."""

    name: str
    index: str | None = None
    conditional: bool = False
    filtered: bool = False
    note: str = ""

    @property
    def key(self) -> UseKey:
        """The key under which the store finds the pattern of a call."""
        return self.name, self.index

    @property
    def reads_only(self) -> bool:
        """Whether the operation writes nothing."""
        return self.name in _READS

    def label(self, table: Table) -> str:
        """Format for the docs: `Query (GSI)`, `PutItem (conditional)`, `Scan + filter`."""
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
    """The operations of a pattern; combine them with `+`."""

    uses: tuple[OperationUse, ...]

    def __add__(self, other: "PatternOperation") -> "PatternOperation":
        return PatternOperation(self.uses + other.uses)

    def on(self, index: str) -> "PatternOperation":
        """Use an index of the table."""
        return self._replace(lambda use: replace(use, index=index), _ON_INDEX, "an index")

    @property
    def conditional(self) -> "PatternOperation":
        """Require a condition."""
        return self._replace(
            lambda use: replace(use, conditional=True), _CONDITIONAL, "a condition"
        )

    @property
    def filtered(self) -> "PatternOperation":
        """Allow a filter."""
        return self._replace(lambda use: replace(use, filtered=True), _ON_INDEX, "a filter")

    def with_note(self, note: str) -> "PatternOperation":
        """Add a remark for the docs."""
        return PatternOperation(tuple(replace(use, note=note) for use in self.uses))

    def _replace(
        self, change: Callable[[OperationUse], OperationUse], supported: frozenset[str], what: str
    ) -> "PatternOperation":
        for use in self.uses:
            if use.name not in supported:
                raise AccessViolation(
                    f"{use.name} does not support {what}; {', '.join(sorted(supported))} do"
                )
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
    """A declared access pattern. Instances compare by identity, so each has its own counters.

    `bound` limits the items that one call may read, and the items that it may write; None means
    that a call touches one page or one item. `tables` are further tables of a transaction. The
    fields are the columns of docs/access-patterns.md; `allowed` and `table_names` are computed once
    for the hot path.
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
        """Format for the docs, with the further tables of a transaction."""
        others = f" with {', '.join(table.name for table in self.tables)}" if self.tables else ""
        return " + ".join(use.label(self.table) for use in self.operation.uses) + others

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes that the pattern reads."""
        return tuple(
            dict.fromkeys(use.index for use in self.operation.uses if use.index is not None)
        )

    @property
    def reads_only(self) -> bool:
        """Whether the pattern writes nothing."""
        return all(use.reads_only for use in self.operation.uses)


def _check_pattern(pattern: AccessPattern) -> None:
    for problem in _problems(pattern):
        raise AccessViolation(f"access pattern {pattern.name!r}: {problem}")


def _problems(pattern: AccessPattern) -> Iterator[str]:
    if not pattern.name.strip():
        yield "the name is empty"
    if len(pattern.allowed) != len(pattern.operation.uses):
        yield "operations must be distinct"
    for index in pattern.indexes:
        if index not in pattern.table.by_name:
            yield f"table {pattern.table.name} has no index {index}"
    if pattern.bound is not None and pattern.bound < 1:
        yield "bound must be at least 1"
    if pattern.bound is None and any(use.name == "Scan" for use in pattern.operation.uses):
        yield "a Scan requires a bound"
