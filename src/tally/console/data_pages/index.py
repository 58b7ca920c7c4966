"""The data page: tables with their estimated sizes, and access patterns with their cost."""

from typing import Any, Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.data_pages.counts import COUNT_SECONDS, ItemCount, TableCounts
from tally.console.data_pages.redaction import is_hidden
from tally.console.shell import Shell, card
from tally.store.report import PatternRow, format_cell
from tally.store.schema import Table

TABLE_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Table", "field": "name", "align": "left", "sortable": True},
    {"name": "key", "label": "Key", "field": "key", "align": "left"},
    {"name": "count", "label": "Items", "field": "count", "align": "right", "sortable": True},
    {"name": "indexes", "label": "Indexes", "field": "indexes", "align": "left"},
    {"name": "ttl", "label": "TTL attribute", "field": "ttl", "align": "left"},
]
# The address is relative, because a proxy may serve the console under another path.
NAME_CELL: Final = """
<q-td :props="props">
<a v-if="!props.row.is_hidden" class="text-primary" :href="'data/' + props.row.name">
{{ props.row.name }}</a>
<span v-else>{{ props.row.name }}
<span class="tally-quiet tally-small">credentials, not shown</span></span></q-td>
"""
COUNT_CELL: Final = '<q-td :props="props">{{ props.row.shown }}</q-td>'
PATTERN_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "backend", "label": "Backend", "field": "backend", "align": "left", "sortable": True},
    {"name": "table", "label": "Table", "field": "table", "align": "left", "sortable": True},
    {"name": "pattern", "label": "Pattern", "field": "pattern", "align": "left"},
    {"name": "operation", "label": "Operation", "field": "operation", "align": "left"},
    {"name": "calls", "label": "Calls", "field": "calls", "align": "right", "sortable": True},
    {"name": "units", "label": "Units read / written", "field": "units", "align": "right"},
    {"name": "p50", "label": "p50 ms", "field": "p50", "align": "right", "sortable": True},
    {"name": "p99", "label": "p99 ms", "field": "p99", "align": "right", "sortable": True},
]


def add_data_index(shell: Shell, context: ConsoleContext) -> None:
    counts = TableCounts(context)

    @shell.page(
        "/data",
        "Data",
        "All tables, their access patterns and what each pattern costs.",
    )
    def data() -> None:
        with card("Tables", about="Select a table to read its items. Counts are estimates."):
            table = (
                ui.table(columns=TABLE_COLUMNS, rows=[], row_key="name", pagination=50)
                .classes("w-full")
                .props("dense flat")
            )
            table.add_slot("body-cell-name", NAME_CELL)
            table.add_slot("body-cell-count", COUNT_CELL)

        async def refresh() -> None:
            found = await counts.get()
            table.rows = [
                _table_row(entry, found.get(entry.name)) for entry in context.catalogue.tables()
            ]
            table.update()

        ui.timer(COUNT_SECONDS, refresh)
        _patterns(context)


def _table_row(table: Table, count: ItemCount | None) -> dict[str, Any]:
    return {
        "name": table.name,
        "is_hidden": is_hidden(table),
        "key": ", ".join(table.key_names),
        "count": -1 if count is None else count.items,
        "shown": "" if count is None else count.text,
        "indexes": ", ".join(index.name for index in table.indexes),
        "ttl": table.ttl or "",
    }


def _patterns(context: ConsoleContext) -> None:
    about = "Calls, capacity units and latency since start"
    with card("Access patterns", about=about):
        pattern_filter = ui.input("Filter patterns").props("clearable").classes("w-80")
        table = (
            ui.table(columns=PATTERN_COLUMNS, rows=[], row_key="id", pagination=15)
            .classes("w-full")
            .props("dense flat")
        )
        pattern_filter.bind_value_to(table, "filter")

    def refresh() -> None:
        table.rows = [_pattern_row(row) for row in context.patterns()]
        table.update()

    refresh()
    ui.timer(3.0, refresh)


def _pattern_row(row: PatternRow) -> dict[str, Any]:
    return {
        "id": f"{row.table} {row.pattern}",
        "backend": row.backend,
        "table": row.table,
        "pattern": row.pattern,
        "operation": row.operation,
        "calls": row.calls,
        "units": f"{format_cell(row.read_units)} / {format_cell(row.write_units)}",
        "p50": row.p50_ms,
        "p99": row.p99_ms,
    }
