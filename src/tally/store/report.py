"""The access patterns as JSON rows and as the Markdown page in docs/.

A row holds a pattern's declaration and its metrics. `GET /patterns` and `tally patterns --json`
return lists of rows. The Markdown page contains metrics only on request, so the page in docs/
changes only with the patterns.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from tally.store.catalogue import Catalogue, PatternEntry
from tally.store.meters import Meter, Meters


class OperationRow(Struct, frozen=True):
    """The metrics of one operation of a pattern."""

    operation: str
    calls: int
    errors: int
    refused: int
    items: int
    read_units: float
    write_units: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


class PatternRow(Struct, frozen=True):
    """A pattern's declaration and its metrics, in total and per operation."""

    backend: str
    table: str
    index: str | None
    pattern: str
    operation: str
    key_condition: str
    filter: str
    condition: str
    projection: str
    requests: str
    by: str
    trigger: str
    frequency: str
    bound: int | None
    method: str
    calls: int
    errors: int
    refused: int
    items: int
    read_units: float
    write_units: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    operations: list[OperationRow]


class PatternList(Struct, frozen=True):
    """The body of /patterns: all patterns, in one page."""

    items: list[PatternRow]
    next_cursor: str | None = None


PATTERN_COLUMNS = {
    "pattern": "Pattern",
    "by": "By",
    "operation": "Operation",
    "index": "Index",
    "key_condition": "Key condition",
    "filter": "Filter",
    "condition": "Condition",
    "projection": "Projection",
    "requests": "Requests per call",
    "bound": "Bound",
    "trigger": "Triggered by",
    "frequency": "Frequency",
}
METRIC_COLUMNS = {
    "calls": "Calls",
    "errors": "Errors",
    "items": "Items",
    "read_units": "Read units",
    "write_units": "Write units",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
}


def pattern_rows(
    catalogue: Catalogue, meters: Meters, backend: str | None = None
) -> list[PatternRow]:
    """Return the rows of all backends, or of one."""
    return [_row(entry, meters) for entry in catalogue.entries(backend)]


def _row(entry: PatternEntry, meters: Meters) -> PatternRow:
    pattern, meter = entry.pattern, meters.of(entry.pattern)
    capacity = meter.capacity
    return PatternRow(
        backend=entry.backend,
        table=pattern.table.name,
        index=", ".join(pattern.indexes) or None,
        pattern=pattern.name,
        operation=pattern.operation_label,
        key_condition=pattern.key_condition,
        filter=pattern.filter,
        condition=pattern.condition,
        projection=pattern.projection,
        requests=pattern.requests,
        by=pattern.by,
        trigger=pattern.trigger,
        frequency=pattern.frequency,
        bound=pattern.bound,
        method=entry.qualified_name,
        calls=meter.whole.calls,
        errors=meter.errors,
        refused=meter.rejected,
        items=meter.items,
        read_units=capacity.read,
        write_units=capacity.write,
        operations=[
            _operation_row(use.label(pattern.table), meter.operations[use.key])
            for use in pattern.operation.uses
        ],
        **_latency(meter.whole),
    )


def _operation_row(label: str, meter: Meter) -> OperationRow:
    return OperationRow(
        operation=label,
        calls=meter.calls,
        errors=meter.errors,
        refused=meter.rejected,
        items=meter.items,
        read_units=meter.read,
        write_units=meter.write,
        **_latency(meter),
    )


def _latency(meter: Meter) -> dict[str, float]:
    mean = meter.seconds / meter.calls if meter.calls else 0.0
    latencies = {
        "mean": mean,
        "p50": meter.quantile(0.5),
        "p99": meter.quantile(0.99),
        "max": meter.slowest,
    }
    return {f"{name}_ms": round(seconds * 1000, 3) for name, seconds in latencies.items()}


def patterns_markdown(rows: Iterable[PatternRow], *, measured: bool = False) -> str:
    """Render the page: one table per table of each backend."""
    lines = [
        "# Access patterns",
        "",
        "Every access to the store is one of these patterns.",
        "A pattern is a method of the repository that owns the table.",
        "The store enforces all columns from the operation to the bound.",
        "An empty cell means no filter, no condition, all attributes, and one request per call.",
        "Without a bound, a request reads one page or touches one item.",
        "`:name` is a value, and `{name}` in a key a part of at least one character.",
        "`tally patterns --markdown` generates this page from the code.",
        "[store.md](store.md) explains how to declare a pattern.",
    ]
    groups: dict[str, dict[str, list[PatternRow]]] = {}
    for row in rows:
        groups.setdefault(row.backend, {}).setdefault(row.table, []).append(row)
    if not groups:
        lines += ["", "There are no backends."]
    for backend, tables in groups.items():
        lines += ["", f"## {backend}"]
        for table, patterns in tables.items():
            lines += [
                "",
                f"### {table}",
                "",
                *_table(patterns, PATTERN_COLUMNS | (METRIC_COLUMNS if measured else {})),
            ]
    return "\n".join(lines) + "\n"


def _table(rows: list[PatternRow], columns: dict[str, str]) -> list[str]:
    """Render a table without its empty columns."""
    used = {
        name: title
        for name, title in columns.items()
        if any(getattr(row, name) not in {None, ""} for row in rows)
    }
    head = [f"| {' | '.join(used.values())} |", f"|{'---|' * len(used)}"]
    return head + [
        f"| {' | '.join(_escaped(format_cell(getattr(row, name))) for name in used)} |"
        for row in rows
    ]


def format_cell(value: Any) -> str:
    """Format a field of a row for people."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
