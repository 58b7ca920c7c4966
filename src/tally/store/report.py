"""The access patterns as documents: JSON for programs, Markdown for the page in docs/.

Both have the same fields for every pattern. The figures are those of one program's `Meters`. The Markdown has them only when it
is told to, so that the page in docs/ changes only when a pattern does.
"""

from collections.abc import Iterable
from typing import Any

from tally.store.catalogue import Catalogue, Entry
from tally.store.meters import Meter, Meters

_COLUMNS = {
    "pattern": "Pattern",
    "by": "By",
    "operation": "Operation",
    "index": "Index",
    "key_condition": "Key condition",
    "trigger": "Triggered by",
    "frequency": "Frequency",
    "bound": "Bound",
}
_FIGURES = {
    "calls": "Calls",
    "errors": "Errors",
    "items": "Items",
    "read_units": "Read units",
    "write_units": "Write units",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
}


def patterns_json(catalogue: Catalogue, meters: Meters, backend: str | None = None) -> list[dict[str, Any]]:
    """Every pattern with what it declares and what it has cost so far."""
    return [_row(entry, meters) for entry in catalogue.entries(backend)]


def _row(entry: Entry, meters: Meters) -> dict[str, Any]:
    pattern, meter = entry.pattern, meters.of(entry.pattern)
    capacity = meter.capacity
    return {
        "backend": entry.backend,
        "table": pattern.table.name,
        "index": ", ".join(pattern.indexes) or None,
        "pattern": pattern.name,
        "operation": pattern.operation_label,
        "key_condition": pattern.key,
        "by": pattern.by,
        "trigger": pattern.trigger,
        "frequency": pattern.frequency,
        "bound": pattern.bound,
        "method": entry.place,
        "calls": meter.whole.calls,
        "errors": meter.errors,
        "refused": meter.refused,
        "items": meter.items,
        "read_units": capacity.read,
        "write_units": capacity.write,
        **_latency(meter.whole),
        "operations": [
            {
                "operation": use.label(pattern.table),
                "calls": (measured := meter.operations[use.key]).calls,
                "errors": measured.errors,
                "refused": measured.refused,
                "items": measured.items,
                "read_units": measured.read,
                "write_units": measured.write,
                **_latency(measured),
            }
            for use in pattern.operation.uses
        ],
    }


def _latency(meter: Meter) -> dict[str, float]:
    mean = meter.seconds / meter.calls if meter.calls else 0.0
    figures = {"mean": mean, "p50": meter.quantile(0.5), "p99": meter.quantile(0.99), "max": meter.slowest}
    return {f"{name}_ms": round(seconds * 1000, 3) for name, seconds in figures.items()}


def patterns_markdown(rows: Iterable[dict[str, Any]], *, measured: bool = False) -> str:
    """A page with one table for each table of each backend."""
    lines = [
        "# Access patterns",
        "",
        "Every access to the store is one of these: a method of the one repository that owns the table, held by the store to",
        "the operation, index and bound that it declares. `tally patterns --markdown` writes this page, from the code that runs;",
        "[store.md](store.md) says how a pattern is declared.",
    ]
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        groups.setdefault(row["backend"], {}).setdefault(row["table"], []).append(row)
    if not groups:
        lines += ["", "There is no backend yet, and so no pattern."]
    for backend, tables in groups.items():
        lines += ["", f"## {backend}"]
        for table, patterns in tables.items():
            lines += ["", f"### {table}", "", *_table(patterns, _COLUMNS | (_FIGURES if measured else {}))]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> list[str]:
    """Columns that nobody fills are left out."""
    used = {name: title for name, title in columns.items() if any(row[name] not in {None, ""} for row in rows)}
    head = [f"| {' | '.join(used.values())} |", f"|{'---|' * len(used)}"]
    return head + [f"| {' | '.join(_cell(row[name]) for name in used)} |" for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    text = f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
