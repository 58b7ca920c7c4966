"""Compiles a declared operation into checks that cost a few comparisons per request."""

from collections.abc import Sequence
from typing import Any

from tally.store.api import BatchPut, ColumnarItems, operation_name
from tally.store.expressions import Condition, Path
from tally.store.pattern_operations import OperationUse
from tally.store.schema import Table
from tally.store.templates import (
    compile_column,
    compile_conditions,
    compile_keys,
    compile_projection,
    render_condition,
    render_key,
    render_path,
)


class RequestCheck:
    """What the store compares with each request of an operation.

    Each `fits_…` is a function or None: every key fits, or there must be no condition. The methods
    return what is wrong, or None.
    """

    __slots__ = (
        "_fits_columns",
        "_fits_condition",
        "_fits_projection",
        "_fits_where",
        "fits_key",
        "parts",
        "projection",
        "requests",
        "table",
        "use",
    )

    def __init__(self, use: OperationUse, table: Table) -> None:
        self.use = use
        self.table = use.table or table
        self.requests = use.requests
        self.projection = use.projection
        self.parts = tuple(RequestCheck(part, table) for part in use.parts)
        self.fits_key = compile_keys(use.keys) if use.keys else None
        self._fits_columns = {
            name: compile_column(value) for key in use.keys[:1] for name, value in key.items()
        }
        self._fits_where = compile_conditions(use.wheres)
        self._fits_condition = compile_conditions(use.conditions)
        self._fits_projection = compile_projection(use.projection)

    def key_problem(self, key: Any) -> str | None:
        """Check the key of a request, or of an item."""
        fits = self.fits_key
        if fits is None or fits(key):
            return None
        found = render_key({name: key.get(name) for name in self.use.keys[0]})
        return f"its {self.use.name} declares {self.use.key_condition}, not {found}"

    def condition_problem(self, condition: Condition | None) -> str | None:
        """Check the condition of a write, or the filter of a read."""
        fits = self._fits_condition
        if condition is None if fits is None else fits(condition):
            return None
        what = "filter" if self.use.reads_only else "condition"
        found = "none" if condition is None else render_condition(condition)
        return (
            f"its {self.use.name} declares the {what} {self.use.condition or 'none'}, not {found}"
        )

    def projection_problem(self, projection: tuple[Path, ...]) -> str | None:
        """Check the projection of a read."""
        if projection == self.projection or self._fits_projection(projection):
            return None
        found = ", ".join(map(render_path, projection)) or "all attributes"
        declared = self.use.projected or "all attributes"
        return f"its {self.use.name} declares a projection of {declared}, not {found}"

    def range_problem(self, operation: Any) -> str | None:
        """Check key condition, direction and limit of a Query."""
        fits, use = self._fits_where, self.use
        if fits is None or not fits(operation.where):
            found = render_condition(operation.where)
            return f"its Query declares {use.key_condition}, not {found}"
        if use.forward is not None and operation.forward is not use.forward:
            order = "ascending" if use.forward else "descending"
            return f"its Query declares {order} order"
        if use.limit is not None and (operation.limit is None or operation.limit > use.limit):
            return f"its Query declares a limit of {use.limit}, not {operation.limit}"
        return None

    def transaction_problem(self, writes: Sequence[Any]) -> str | None:
        """Check a transaction: each part is there as often as declared, and nothing else."""
        found: list[list[RequestCheck]] = []
        for write in writes:
            name = operation_name(write)
            parts = self._parts_of(name, write.table)
            fitting = [part for part in parts if part.fits_write(write)]
            if not fitting:
                problems = [part.write_problem(write) for part in parts]
                return problems[-1] if problems else self._undeclared(name, write.table)
            found.append(fitting)
        return self._count_problem(found)

    def batch_problem(self, puts: Sequence[BatchPut]) -> str | None:
        """Check the puts of a TransactionBatch; columns are checked as a whole."""
        found: list[list[RequestCheck]] = []
        for put in puts:
            parts = self._parts_of("PutItem", put.table)
            problems = [part.put_problem(put) for part in parts]
            if None not in problems:
                return problems[-1] if problems else self._undeclared("PutItem", put.table)
            found.append([part for part, each in zip(parts, problems, strict=True) if each is None])
        return self._count_problem(found)

    def _parts_of(self, name: str, table: Table) -> list["RequestCheck"]:
        return [part for part in self.parts if part.use.name == name and part.is_on(table)]

    def _undeclared(self, name: str, table: Table) -> str:
        return f"its {self.use.name} does not declare {name} in {table.name}"

    def _count_problem(self, found: Sequence[list["RequestCheck"]]) -> str | None:
        """Check how often each part is there; `found` has the parts whose form a write has."""
        single = {parts[0] for parts in found if len(parts) == 1}
        if len(single) == len(found) == len(self.parts):
            return None  # the usual transaction
        counts = dict.fromkeys(self.parts, 0)
        for parts in sorted(found, key=len):  # those without a choice first
            part = min(parts, key=lambda one: (counts[one] / one.requests, one.use.is_optional))
            counts[part] += 1
        for part, count in counts.items():
            if count > part.requests:
                most = f"at most {part.requests} {part.use.name} in {part.table.name}"
                return f"its {self.use.name} declares {most}, not {count}"
            if not count and not part.use.is_optional:
                form = f"{part.use.key_condition} {part.use.condition}".strip()
                return f"its {self.use.name} lacks the {part.use.name} in {part.table.name}: {form}"
        return None

    def fits_write(self, write: Any) -> bool:
        """Whether a write or read of this operation and table has the form of this part."""
        name, fits_key, fits_condition = self.use.name, self.fits_key, self._fits_condition
        if fits_key is not None and not fits_key(write.item if name == "PutItem" else write.key):
            return False
        if name == "GetItem":
            return self.projection_problem(write.projection) is None
        return (
            write.condition is None if fits_condition is None else fits_condition(write.condition)
        )

    def put_problem(self, put: BatchPut) -> str | None:
        """Check condition and keys of a BatchPut."""
        return self.condition_problem(put.condition) or self.batch_key_problem(put)

    def batch_key_problem(self, put: BatchPut) -> str | None:
        """Check the keys of a BatchPut, by column if there is one form of the key."""
        fits = self.fits_key
        if fits is None:
            return None
        if isinstance(put.items, ColumnarItems) and len(self.use.keys) == 1:
            columns = put.items.values
            if all(
                matches(columns.get(name) or (put.common.get(name),))
                for name, matches in self._fits_columns.items()
            ):
                return None
        keys = ({**put.common, **item} for item in put.items)
        return next((self.key_problem(key) for key in keys if not fits(key)), None)

    def is_on(self, table: Table) -> bool:
        """Whether the operation is declared for this table."""
        return self.table is table or self.table.name == table.name

    def write_problem(self, write: Any) -> str | None:
        """Check key and condition of a write, or key and projection of a read."""
        name = self.use.name
        key = write.item if name == "PutItem" else write.key
        if name == "GetItem":
            return self.key_problem(key) or self.projection_problem(write.projection)
        if self._fits_condition is None and write.condition is None:
            return self.key_problem(key)
        return self.key_problem(key) or self.condition_problem(write.condition)
