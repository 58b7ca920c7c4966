"""The page of one item: its attributes, and for operators changes with a difference to confirm."""

from typing import Any, Final

import msgspec
from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.data_pages.edits import (
    AttributeChange,
    compare,
    delete,
    editable_text,
    load_item,
    parse_item,
    save,
    value_text,
)
from tally.console.data_pages.reads import key_from_address
from tally.console.data_pages.redaction import is_editable, masked_names, visible
from tally.console.data_pages.table import find_shown_table
from tally.console.shell import Region, Shell, card, empty_state, heading
from tally.errors import TallyError
from tally.store.schema import Table
from tally.store.values import Item, Key, type_of

REFRESH_SECONDS: Final = 2.0
WARNING: Final = (
    "Backends rely on rules that this editor does not know. A wrong value may break them."
)


def add_item_page(shell: Shell, context: ConsoleContext) -> None:
    @shell.page("/data/{name}/item", "Item", is_headed=False)
    async def item_page(name: str, partition: str = "", sort: str = "") -> None:
        table = find_shown_table(context, name)
        if table is None:
            heading("Item")
            empty_state(f"No table {name} can be shown here.")
            return
        try:
            key = key_from_address(table, partition, sort)
            item = await load_item(context.engine, table, key)
        except TallyError as error:
            heading("Item")
            empty_state(error.message)
            return
        heading("Item", f"{table.name}, {_key_text(key)}")
        if item is None:
            empty_state("This item does not exist. It may have been deleted or have expired.")
            return
        if masked_names(item) & set(table.key_names):
            empty_state("The key of this item may be a secret, so the item is not shown.")
            return
        view = ItemView(context, table, key, item)
        view.show()
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)


def _key_text(key: Key) -> str:
    return ", ".join(f"{name} = {value}" for name, value in key.items())


class ItemView:
    """The page of one visitor. `_base` is the version that the editor was filled from."""

    def __init__(self, context: ConsoleContext, table: Table, key: Key, item: Item) -> None:
        self._context = context
        self._table = table
        self._key = key
        self._current: Item | None = item
        self._base = item

    def show(self) -> None:
        with card("Attributes", about="Refreshed every 2 seconds."):
            self._region = Region(ui.column().classes("w-full gap-2"))
        self._draw()
        if is_editable(self._table):
            self._editor()

    async def refresh(self) -> None:
        try:
            self._current = await load_item(self._context.engine, self._table, self._key)
        except TallyError:
            return  # the next refresh tries again
        self._draw()

    def _draw(self) -> None:
        shown = None if self._current is None else visible(self._current)
        self._region.show(shown, self._draw_attributes)

    def _draw_attributes(self) -> None:
        if self._current is None:
            empty_state("This item has been deleted or has expired.")
            return
        shown = visible(self._current)
        for name in [*self._table.key_names, *sorted(shown.keys() - {*self._table.key_names})]:
            with ui.column().classes("gap-0 w-full").props(f'data-attribute="{name}"'):
                kind = type_of(self._current[name])
                ui.label(f"{name} ({kind})").classes("tally-quiet tally-small")
                ui.label(_value(shown[name])).style(
                    "overflow-wrap: anywhere; white-space: pre-wrap"
                )

    def _editor(self) -> None:
        with card("Change this item", about=WARNING):
            self._text = (
                ui.textarea("Attributes as DynamoDB JSON", value=editable_text(self._base))
                .classes("w-full")
                .props("autogrow outlined input-style='font-family: monospace' spellcheck=false")
            )
            self._problem = ui.label().classes("text-negative").props("role=alert")
            with ui.row().classes("gap-3"):
                review = ui.button("Review changes", icon="difference")
                remove = ui.button("Delete item").props("flat color=negative")
                ui.button("Reload", on_click=self._reload).props("flat")
        self._context.changes.control(review, self._review)
        self._context.changes.control(remove, self._confirm_delete)

    async def _reload(self) -> None:
        await self.refresh()
        if self._current is not None:
            self._base = self._current
            self._text.set_value(editable_text(self._base))
        self._problem.set_text("")

    async def _review(self) -> None:
        try:
            after = parse_item(self._table, self._base, self._text.value or "")
        except TallyError as error:
            self._problem.set_text(error.message)
            return
        self._problem.set_text("")
        changes = compare(self._base, after)
        if not changes:
            self._problem.set_text("Nothing has changed.")
            return
        self._ask("Save these changes?", changes, "Save", lambda: self._save(changes))

    async def _confirm_delete(self) -> None:
        self._ask("Delete this item?", compare(self._base, {}), "Delete", self._delete)

    def _ask(self, title: str, changes: list[AttributeChange], verb: str, run: Any) -> None:
        """Show what changes, and run it when the operator confirms."""
        hidden = masked_names(self._base)

        async def confirmed() -> None:
            dialog.value = False
            try:
                await run()
            except TallyError as error:
                self._problem.set_text(error.message)

        with ui.dialog() as dialog, ui.card().classes("w-full"):
            ui.label(title).classes("text-h6").props("role=heading aria-level=2")
            for change in changes:
                if change.name not in hidden:
                    _difference(change)
            with ui.row():
                button = ui.button(verb)
                ui.button("Cancel", on_click=dialog.close).props("flat")
        self._context.changes.control(button, confirmed)
        dialog.value = True

    async def _save(self, changes: list[AttributeChange]) -> None:
        names = [change.name for change in changes]
        async with self._context.changes.audited("item_update", self._target, attributes=names):
            await save(self._context.engine, self._table, self._base, changes)
        await self._reload()
        ui.notify("Saved")

    async def _delete(self) -> None:
        async with self._context.changes.audited("item_delete", self._target):
            await delete(self._context.engine, self._table, self._base)
        await self.refresh()
        ui.notify("Deleted")

    @property
    def _target(self) -> str:
        return f"data/{self._table.name}: {_key_text(self._key)}"


def _difference(change: AttributeChange) -> None:
    with ui.column().classes("gap-0 w-full").props(f'data-change="{change.name}"'):
        ui.label(change.name).classes("text-weight-medium")
        for sign, side, colour in (
            ("-", change.before, "text-negative"),
            ("+", change.after, "text-positive"),
        ):
            if text := value_text(side):
                ui.label(f"{sign} {text}").classes(f"tally-small {colour}").style(
                    "font-family: monospace; overflow-wrap: anywhere"
                )


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
