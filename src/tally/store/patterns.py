"""Access patterns: a name, operations with the form of their requests, caller, frequency and bound.

A pattern is validated when it is declared: its indexes must exist, its keys must be those of the
table, and a Scan needs a bound. `access.py` attaches it to a repository method.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tally.store.errors import AccessViolation
from tally.store.expressions import And, Compare, Condition
from tally.store.pattern_operations import OperationUse, PatternOperation, UseKey
from tally.store.request_checks import RequestCheck
from tally.store.schema import Table

By: TypeAlias = Literal["user", "system", "both"]


@dataclass(frozen=True, slots=True, eq=False)
class AccessPattern:
    """A declared access pattern. Instances compare by identity, so each has its own counters.

    `bound` limits the items that one call may read, and the items that it may write; None means
    that a request touches one page or one item. `tables` are further tables of a transaction. The
    fields are the columns of docs/access-patterns.md; `allowed` and `table_names` are computed once
    for the hot path.
    """

    name: str
    operation: PatternOperation
    table: Table
    by: By = "system"
    trigger: str = ""
    frequency: str = ""
    bound: int | None = None
    tables: tuple[Table, ...] = ()
    allowed: Mapping[UseKey, RequestCheck] = field(init=False, repr=False, default_factory=dict)
    table_names: frozenset[str] = field(init=False, repr=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "allowed",
            {use.key: RequestCheck(use, self.table) for use in self.operation.uses},
        )
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
    def key_condition(self) -> str:
        """The keys of all operations, generated from their templates."""
        return self._per_operation(lambda use: use.key_condition)

    @property
    def filter(self) -> str:
        """The filters of the reads."""
        return self._per_operation(lambda use: use.condition if use.reads_only else "")

    @property
    def condition(self) -> str:
        """The conditions of the writes; those of a transaction are in the key condition."""
        return self._per_operation(lambda use: "" if use.reads_only else use.condition)

    @property
    def projection(self) -> str:
        """The attributes that reads return, if not all."""
        return self._per_operation(lambda use: use.projected)

    @property
    def requests(self) -> str:
        """How many requests of each operation one call may send, if more than one."""
        return self._per_operation(lambda use: f"{use.requests:,}" if use.requests > 1 else "")

    def _per_operation(self, describe: Callable[[OperationUse], str]) -> str:
        uses = self.operation.uses
        if len(uses) == 1:
            return describe(uses[0])
        texts = [(use.name, describe(use)) for use in uses]
        return "; ".join(f"{name}: {text}" for name, text in texts if text)

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
    if pattern.table.stream is None and ("GetRecords", None) in pattern.allowed:
        yield f"table {pattern.table.name} has no stream"
    for use in pattern.operation.uses:
        for part in (use, *use.parts):
            yield from _use_problems(pattern, part)


def _use_problems(pattern: AccessPattern, use: OperationUse) -> Iterator[str]:
    table = use.table or pattern.table
    if table.name not in pattern.table_names:
        yield f"it does not declare table {table.name}"
    if use.requests < 1:
        yield f"{use.name}: requests must be at least 1"
    for key in use.keys:
        if set(key) != set(table.key_names):
            yield f"{use.name}: the key of {table.name} is {', '.join(table.key_names)}"
    partition = (table.partition if use.index is None else table.index(use.index).partition).name
    for where in use.wheres:
        if not _names_partition(where, partition):
            yield f"{use.name}: the key condition must start with {partition} = …"


def _names_partition(where: Condition, partition: str) -> bool:
    first = where.left if isinstance(where, And) else where
    return isinstance(first, Compare) and first.operator == "=" and str(first.left) == partition
