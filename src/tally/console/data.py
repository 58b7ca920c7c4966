"""The data page: tables, access patterns with their cost, and items by key.

Items are queried by partition key. A scan is expensive on a large table, so it needs confirmation
and is limited.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.shell import Shell, card, empty_state
from tally.kit.jsonable import to_jsonable
from tally.store import api
from tally.store.errors import StoreError
from tally.store.expressions import F
from tally.store.report import PatternRow, format_cell
from tally.store.schema import Table
from tally.store.values import Item

MAX_ITEMS: Final = 25
TABLE_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Table", "field": "name", "align": "left", "sortable": True},
    {"name": "key", "label": "Key", "field": "key", "align": "left"},
    {"name": "indexes", "label": "Indexes", "field": "indexes", "align": "left"},
    {"name": "ttl", "label": "TTL attribute", "field": "ttl", "align": "left"},
]
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


def add_data_pages(shell: Shell, context: ConsoleContext) -> None:
    @shell.page(
        "/data",
        "Data",
        "All tables, their access patterns and what each pattern costs.",
    )
    def data() -> None:
        tables = {table.name: table for table in context.catalogue.tables()}
        with card("Tables", about="Keys and indexes are the same on every engine"):
            rows = [_table_row(table) for table in tables.values()]
            ui.table(columns=TABLE_COLUMNS, rows=rows, row_key="name", pagination=10).classes(
                "w-full"
            ).props("dense flat")
        _browser(context, tables)
        _patterns(context)


def _table_row(table: Table) -> dict[str, str]:
    return {
        "name": table.name,
        "key": ", ".join(table.key_names),
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


def _browser(context: ConsoleContext, tables: Mapping[str, Table]) -> None:
    with card(
        "Items by key",
        about="Query one partition, or scan a table (with confirmation)",
    ):
        with ui.row().classes("items-end gap-3"):
            chosen = ui.select(sorted(tables), label="Table").classes("w-72")
            partition = ui.input("Partition key").classes("w-72")
            ui.button("Query", icon="search", on_click=lambda: query())  # noqa: PLW0108  (defined below)
            ui.button("Scan table", on_click=lambda: confirm()).props(  # noqa: PLW0108  (defined below)
                "flat no-caps color=warning"
            )
        results = ui.column().classes("w-full")

    async def query() -> None:
        table = tables.get(str(chosen.value))
        if table is None or not partition.value:
            ui.notify("Select a table and enter a partition key", type="warning")
            return
        condition = F(table.partition.name) == _typed(table, str(partition.value))
        await _show(context, results, api.Query(table, condition, limit=MAX_ITEMS))

    def confirm() -> None:
        table = tables.get(str(chosen.value))
        if table is None:
            ui.notify("Select a table", type="warning")
        else:
            _confirm_scan(context, table, results)


def _confirm_scan(context: ConsoleContext, table: Table, results: ui.column) -> None:
    async def scan() -> None:
        dialog.value = False
        await _show(context, results, api.Scan(table, limit=MAX_ITEMS))

    with ui.dialog() as dialog, ui.card():
        ui.label(f"Read the first {MAX_ITEMS} items of {table.name}? This is a scan.")
        with ui.row():
            ui.button("Scan", on_click=scan)
            ui.button("Cancel", on_click=dialog.close).props("flat")
    dialog.value = True


async def _show(
    context: ConsoleContext, results: ui.column, operation: api.Query | api.Scan
) -> None:
    """Run the operation and show its items as JSON."""
    results.clear()
    engine = context.engine
    try:
        if isinstance(operation, api.Query):
            page = await engine.query(operation)
        else:
            page = await engine.scan(operation)
    except StoreError as error:
        with results:
            empty_state(str(error))
        return
    with results:
        if not page.items:
            empty_state("No items with this key.")
        for item in page.items:
            ui.code(_as_json(item), language="json").classes("w-full")


def _typed(table: Table, text: str) -> str | Decimal:
    return Decimal(text) if table.partition.type == "N" else text


def _as_json(item: Item) -> str:
    content = to_jsonable(item, binary=lambda content: f"{len(content)} bytes")
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
