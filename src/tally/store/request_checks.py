"""Compiles a declared operation into checks that cost a few comparisons per request."""

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

    def part_problem(self, write: Any) -> str | None:
        """Check one operation of a transaction: it has the form of one of the parts."""
        problem, name, table = None, operation_name(write), write.table
        for part in self.parts:
            if part.use.name == name and part.is_on(table):
                problem = part.write_problem(write)
                if problem is None:
                    return None
        return problem or f"its {self.use.name} does not declare {name} in {table.name}"

    def batch_problem(self, put: BatchPut) -> str | None:
        """Check the puts of a TransactionBatch; columns are checked as a whole."""
        problem = None
        for part in self.parts:
            if part.use.name == "PutItem" and part.is_on(put.table):
                problem = part.condition_problem(put.condition) or part.batch_key_problem(put)
                if problem is None:
                    return None
        return problem or f"its {self.use.name} does not declare PutItem in {put.table.name}"

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
