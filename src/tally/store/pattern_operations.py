"""The operations that an access pattern declares, each with the form of its requests.

    GetItem(key={"matchId": param("matchId")}, project=("status",))
    Query(where=F("userId") == param("user"), index="userId-index", filter=F("ttl") > param("now"))
    PutItem(key=lock_key(param("name")), condition=not_exists("lockKey"))
    Query(...) + DeleteItem(key=..., requests=100)

`requests` is how often one call of the method may send the operation: once unless declared. A part
of a transaction is there once, or up to `requests` times, unless it is `.optional()`. Several forms
are given as a tuple: `condition=(is_newer, None)` allows a request without a condition, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from tally.store.expressions import Condition, F, Path, make_path
from tally.store.schema import Table
from tally.store.templates import render_condition, render_key, render_path

UseKey: TypeAlias = tuple[str, str | None]
KeyTemplate: TypeAlias = Mapping[str, Any]
Keys: TypeAlias = KeyTemplate | tuple[KeyTemplate, ...]
Conditions: TypeAlias = Condition | tuple[Condition | None, ...] | None
T = TypeVar("T")

_READS = frozenset({"GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems", "GetRecords"})


@dataclass(frozen=True, slots=True)
class OperationUse:
    """One operation of a pattern, by DynamoDB's name, and the requests that it allows.

    `keys` are templates of primary keys, `wheres` key conditions of a Query. `conditions` are the
    conditions of a write or the filters of a read; None stands for a request without one. `forward`
    is None if both directions are allowed. `parts` are the operations of a transaction, which has
    each of them, up to `requests` times, unless it `is_optional`.
    """

    name: str
    index: str | None = None
    keys: tuple[KeyTemplate, ...] = ()
    wheres: tuple[Condition, ...] = ()
    conditions: tuple[Condition | None, ...] = (None,)
    projection: tuple[Path, ...] = ()
    forward: bool | None = True
    limit: int | None = None
    requests: int = 1
    is_optional: bool = False
    note: str = ""
    table: Table | None = None
    parts: tuple["OperationUse", ...] = ()

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
        if None not in self.conditions and not self.reads_only:
            remarks.insert(0, "conditional")
        if self.index is not None:
            remarks.insert(0, "LSI" if table.index(self.index).local else "GSI")
        is_filtered = self.reads_only and self.conditions != (None,)
        return (
            self.name
            + (f" ({', '.join(remarks)})" if remarks else "")
            + (" + filter" if is_filtered else "")
        )

    @property
    def key_condition(self) -> str:
        """The keys that requests may have, as DynamoDB writes a key condition."""
        if self.parts:
            return "; ".join(_describe_part(part) for part in self.parts)
        forms = [*map(render_key, self.keys), *map(render_condition, self.wheres)]
        order = {True: "", False: ", descending", None: ", ascending or descending"}[self.forward]
        return "; or ".join(forms) + order + (f", Limit {self.limit}" if self.limit else "")

    @property
    def condition(self) -> str:
        """The conditions or filters that requests have."""
        if self.conditions == (None,):
            return ""
        return "; or ".join(
            "none" if condition is None else render_condition(condition)
            for condition in self.conditions
        )

    @property
    def projected(self) -> str:
        """The attributes that a read returns; empty for all."""
        return ", ".join(map(render_path, self.projection))


def _describe_part(part: OperationUse) -> str:
    where = f" in {part.table.name}" if part.table is not None else ""
    condition = f" with {part.condition}" if part.condition else ""
    projected = f" projects {part.projected}" if part.projected else ""
    remarks = ["optional"] if part.is_optional else []
    remarks += [f"up to {part.requests}"] if part.requests > 1 else []
    often = f" ({', '.join(remarks)})" if remarks else ""
    return f"{part.name}{often}{where} {part.key_condition}{condition}{projected}"


@dataclass(frozen=True, slots=True)
class PatternOperation:
    """The operations of a pattern; combine them with `+`."""

    uses: tuple[OperationUse, ...]

    def __add__(self, other: "PatternOperation") -> "PatternOperation":
        return PatternOperation(self.uses + other.uses)

    def with_note(self, note: str) -> "PatternOperation":
        """Add a remark for the docs."""
        return PatternOperation(tuple(replace(use, note=note) for use in self.uses))

    def optional(self) -> "PatternOperation":
        """Allow a transaction without this part."""
        return PatternOperation(tuple(replace(use, is_optional=True) for use in self.uses))


def _many(value: T | tuple[T, ...]) -> tuple[T, ...]:
    return value if isinstance(value, tuple) else (value,)


def _paths(project: Iterable[str | F]) -> tuple[Path, ...]:
    return tuple(field.path if isinstance(field, F) else make_path(field) for field in project)


def _operation(name: str, **declared: Any) -> PatternOperation:
    return PatternOperation((OperationUse(name, **declared),))


def GetItem(  # noqa: N802 - DynamoDB's name
    *, key: Keys, project: Iterable[str | F] = (), requests: int = 1, table: Table | None = None
) -> PatternOperation:
    """Read one item. `table` is for parts of a transaction on another table."""
    projection = _paths(project)
    return _operation(
        "GetItem", keys=_many(key), projection=projection, requests=requests, table=table
    )


def PutItem(  # noqa: N802 - DynamoDB's name
    *, key: Keys, condition: Conditions = None, requests: int = 1, table: Table | None = None
) -> PatternOperation:
    """Write an item with such a key."""
    conditions = _many(condition)
    return _operation(
        "PutItem", keys=_many(key), conditions=conditions, requests=requests, table=table
    )


def UpdateItem(  # noqa: N802 - DynamoDB's name
    *, key: Keys, condition: Conditions = None, requests: int = 1, table: Table | None = None
) -> PatternOperation:
    """Change an item."""
    conditions = _many(condition)
    return _operation(
        "UpdateItem", keys=_many(key), conditions=conditions, requests=requests, table=table
    )


def DeleteItem(  # noqa: N802 - DynamoDB's name
    *, key: Keys, condition: Conditions = None, requests: int = 1, table: Table | None = None
) -> PatternOperation:
    """Delete an item."""
    conditions = _many(condition)
    return _operation(
        "DeleteItem", keys=_many(key), conditions=conditions, requests=requests, table=table
    )


def ConditionCheck(  # noqa: N802 - DynamoDB's name
    *,
    key: Keys,
    condition: Condition | tuple[Condition, ...],
    requests: int = 1,
    table: Table | None = None,
) -> PatternOperation:
    """Check a condition; only in a transaction."""
    conditions = _many(condition)
    return _operation(
        "ConditionCheck", keys=_many(key), conditions=conditions, requests=requests, table=table
    )


def Query(  # noqa: N802 - DynamoDB's name
    *,
    where: Condition | tuple[Condition, ...],
    index: str | None = None,
    filter: Conditions = None,  # noqa: A002 - DynamoDB's word
    project: Iterable[str | F] = (),
    forward: bool | None = True,
    limit: int | None = None,
    requests: int = 1,
) -> PatternOperation:
    """Read a range of a partition. Further pages of one read need a bound, not more requests."""
    return _operation(
        "Query",
        index=index,
        wheres=_many(where),
        conditions=_many(filter),
        projection=_paths(project),
        forward=forward,
        limit=limit,
        requests=requests,
    )


def Scan(  # noqa: N802 - DynamoDB's name
    *,
    index: str | None = None,
    filter: Conditions = None,  # noqa: A002 - DynamoDB's word
    project: Iterable[str | F] = (),
    requests: int = 1,
) -> PatternOperation:
    """Read a table or an index."""
    projection, conditions = _paths(project), _many(filter)
    return _operation(
        "Scan", index=index, conditions=conditions, projection=projection, requests=requests
    )


def BatchGetItem(  # noqa: N802 - DynamoDB's name
    *, key: Keys, project: Iterable[str | F] = (), requests: int = 1
) -> PatternOperation:
    """Read items by their keys."""
    return _operation(
        "BatchGetItem", keys=_many(key), projection=_paths(project), requests=requests
    )


def BatchWriteItem(*, key: Keys, requests: int = 1) -> PatternOperation:  # noqa: N802 - DynamoDB's name
    """Put and delete items with such keys."""
    return _operation("BatchWriteItem", keys=_many(key), requests=requests)


def TransactWriteItems(*parts: PatternOperation, requests: int = 1) -> PatternOperation:  # noqa: N802 - DynamoDB's name
    """Apply writes and checks atomically: each part once, or as it declares."""
    uses = tuple(use for part in parts for use in part.uses)
    return _operation("TransactWriteItems", parts=uses, requests=requests)


def TransactGetItems(*parts: PatternOperation, requests: int = 1) -> PatternOperation:  # noqa: N802 - DynamoDB's name
    """Read items in one snapshot: each part once, or as it declares."""
    uses = tuple(use for part in parts for use in part.uses)
    return _operation("TransactGetItems", parts=uses, requests=requests)


def GetRecords(*, requests: int = 1) -> PatternOperation:  # noqa: N802 - DynamoDB's name
    """Read the changes of the table's stream."""
    return _operation("GetRecords", requests=requests)
