"""The page of one table: queries by key and by index, pages of items, and exports."""

from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from nicegui import ui
from starlette.requests import Request

from tally.console.context import ConsoleContext
from tally.console.data_pages.reads import (
    PAGE_SIZES,
    SORT_CONDITIONS,
    ItemQuery,
    key_parameters,
    read_page,
)
from tally.console.data_pages.redaction import is_hidden, masked_names, visible
from tally.console.formatting import pluralize
from tally.console.shell import Shell, card, empty_state, heading
from tally.errors import TallyError
from tally.store.schema import Table
from tally.store.values import Item, Key

REFRESH_SECONDS: Final = 2.0
MAX_COLUMNS: Final = 20
MAX_CELL: Final = 60
TABLE_KEY: Final = "Table key"
# The last part of the key links to the page of the item, unless the key is masked.
KEY_CELL: Final = """
<q-td :props="props"><a v-if="props.row._page" class="text-primary" :href="props.row._page">
{{ props.value }}</a>
<span v-else>{{ props.value }}</span></q-td>
"""


def find_shown_table(context: ConsoleContext, name: str) -> Table | None:
    """Return the table with this name, unless it is hidden."""
    for table in context.catalogue.tables():
        if table.name == name and not is_hidden(table):
            return table
    return None


def add_table_page(shell: Shell, context: ConsoleContext) -> None:
    @shell.page("/data/{name}", "Table", is_headed=False)
    async def table_page(request: Request, name: str) -> None:
        table = find_shown_table(context, name)
        if table is None:
            heading("Table")
            empty_state(f"No table {name} can be shown here.")
            return
        heading(table.name, _describe(table))
        view = TableView(context, table)
        await view.show(ItemQuery.of(request.query_params))
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)


def _describe(table: Table) -> str:
    key = " and ".join(f"{part.name} ({part.type})" for part in table.key)
    ttl = f" Items expire by {table.ttl}." if table.ttl else ""
    return f"Key: {key}.{ttl}"


class TableView:
    """The page of one visitor: a query, and the page of items that is shown."""

    def __init__(self, context: ConsoleContext, table: Table) -> None:
        self._engine = context.engine
        self._table = table
        self._query = ItemQuery()
        # The start keys of the pages up to the one that is shown.
        self._starts: list[Key | None] = [None]
        self._next: Key | None = None
        self._shown: object = None

    async def show(self, query: ItemQuery) -> None:
        with card("Items", about="Refreshed every 2 seconds. Without a query: in no order."):
            self._form(query)
            self._problem = ui.label().classes("text-negative").props("role=alert")
            self._rows = (
                ui.table(columns=[], rows=[], row_key="_id")
                .classes("w-full")
                .props(
                    "dense flat hide-pagination :rows-per-page-options='[0]'"
                    " no-data-label='No item on this page.'"
                )
            )
            self._rows.add_slot(f"body-cell-{self._table.key_names[-1]}", KEY_CELL)
            with ui.row().classes("items-center gap-3 w-full"):
                self._previous = ui.button("Previous", on_click=self._go_back).props("flat")
                self._position = ui.label().classes("tally-quiet").props("role=status")
                self._following = ui.button("Next", on_click=self._go_on).props("flat")
                self._size = ui.select(list(PAGE_SIZES), value=PAGE_SIZES[0], label="Page size")
                self._size.classes("w-28").on_value_change(self._run)
                self._csv = (
                    ui.link("Export CSV", "").classes("text-primary").props("data-export=csv")
                )
                self._lines = (
                    ui.link("Export JSON lines", "")
                    .classes("text-primary")
                    .props("data-export=jsonl")
                )
        await self._run()

    def _form(self, query: ItemQuery) -> None:
        names = [TABLE_KEY, *self._table.by_name]
        with ui.row().classes("items-end gap-3 w-full"):
            self._index = ui.select(names, label="Key or index", value=query.index or TABLE_KEY)
            self._index.classes("w-56").on_value_change(self._label_keys)
            self._partition = ui.input(value=query.partition).classes("w-64")
            self._condition = ui.select(
                list(SORT_CONDITIONS), label="Sort key", value=query.condition
            ).classes("w-32")
            self._value = ui.input(value=query.value).classes("w-56")
            self._upper = ui.input("and", value=query.upper).classes("w-56")
            self._upper.bind_visibility_from(self._condition, "value", lambda it: it == "between")
            self._order = ui.select(
                ["ascending", "descending"], label="Order", value=query.order
            ).classes("w-36")
            ui.button("Query", icon="search", on_click=self._run)
        self._label_keys()

    def _label_keys(self) -> None:
        keyed = self._table.by_name.get(self._index.value) or self._table
        self._partition.props(f'label="{keyed.partition.name} ({keyed.partition.type})"')
        sort = keyed.sort
        for element in (self._condition, self._value, self._order):
            element.set_visibility(sort is not None)
        if sort is not None:
            self._value.props(f'label="{sort.name} ({sort.type})"')

    async def _run(self) -> None:
        index = "" if self._index.value == TABLE_KEY else str(self._index.value)
        self._query = ItemQuery(
            index,
            self._partition.value or "",
            self._condition.value,
            self._value.value or "",
            self._upper.value or "",
            self._order.value,
        )
        self._starts = [None]
        parameters = self._query.parameters()
        suffix = f"?{urlencode(parameters)}" if parameters else ""
        # Relative: NiceGUI does not add the path under which the console is served.
        ui.navigate.history.replace(f"{self._table.name}{suffix}")
        for link, kind in ((self._csv, "csv"), (self._lines, "jsonl")):
            query = urlencode({"format": kind, **parameters})
            link.props(f'href="{self._table.name}/export?{query}"')
        await self.refresh()

    async def _go_on(self) -> None:
        if self._next is not None:
            self._starts.append(self._next)
            await self.refresh()

    async def _go_back(self) -> None:
        self._starts = self._starts[:-1] or [None]
        await self.refresh()

    async def refresh(self) -> None:
        """Show the page as it is now; without a change, the browser receives nothing."""
        try:
            operation = self._query.read(self._table, int(self._size.value), self._starts[-1])
            page = await read_page(self._engine, operation)
        except TallyError as error:
            self._draw([], error.message)
            return
        self._next = page.next
        self._draw(page.items, "")

    def _draw(self, items: list[Item], problem: str) -> None:
        number, has_next = len(self._starts), self._next is not None and not problem
        rows = [_row(self._table, item) for item in items]
        shown = (rows, problem, number, has_next)
        if shown == self._shown:
            return
        self._shown = shown
        self._problem.set_text(problem)
        self._rows.columns = _columns(self._table, items)
        self._rows.rows = rows
        self._rows.update()
        nothing = "No items match." if not problem else ""
        self._position.set_text(
            f"Page {number}, {len(rows)} {pluralize(len(rows), 'item', 'items')}"
            if rows
            else nothing
        )
        self._previous.set_enabled(number > 1)
        self._following.set_enabled(has_next)


def _columns(table: Table, items: list[Item]) -> list[dict[str, Any]]:
    """Return the key, then the other attributes of the page's items."""
    others = sorted({name for item in items for name in item} - set(table.key_names))
    names = [*table.key_names, *others][:MAX_COLUMNS]
    return [
        {"name": name, "label": name, "field": name, "align": "left", "sortable": True}
        for name in names
    ]


def _row(table: Table, item: Item) -> dict[str, str]:
    shown = visible(item)
    row = {name: _cell(value) for name, value in shown.items()}
    key = key_parameters(table, item)
    is_open = masked_names(item).isdisjoint(table.key_names)
    page = f"{table.name}/item?{urlencode(key)}" if is_open else ""
    return row | {"_id": urlencode(key) if is_open else str(id(item)), "_page": page}


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"
