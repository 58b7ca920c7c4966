"""Elements that the operations pages share: times, links in tables, confirmations and secrets."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from nicegui import ui

from tally.console.access import Changes
from tally.console.local_time import local_time, sortable_time_cell

# The column's values are those of `time_text`, which sort as text.
TIME_CELL: Final = sortable_time_cell()


def time_text(at: datetime | str | None) -> str:
    """Format a time for a table: sortable text in UTC."""
    if at is None:
        return ""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def show_time(at: datetime | str | None, *, never: str = "never") -> None:
    local_time(at, "second", never=never).classes("tally-numbers")


def relative_link_cell(prefix: str = "") -> str:
    """Return the template of a table cell that links to `prefix` and the value.

    The address is relative, because a proxy may serve the console under another path.
    """
    address = f"'{prefix}' + encodeURIComponent(props.value)"
    return (
        f'<q-td :props="props"><a :href="{address}" class="text-primary">'
        "{{ props.value }}</a></q-td>"
    )


def ask_to_confirm(
    changes: Changes, question: str, verb: str, run: Callable[[], Awaitable[None]]
) -> None:
    """Ask before a change that cannot be undone."""

    async def confirmed() -> None:
        dialog.value = False
        await run()

    with ui.dialog() as dialog, ui.card():
        ui.label(question).props("role=heading aria-level=2")
        with ui.row():
            button = ui.button(verb).props("color=negative")
            ui.button("Cancel", on_click=lambda: dialog.set_value(False)).props("flat")
    changes.control(button, confirmed)
    dialog.value = True


def show_secret(title: str, secret: str) -> None:
    """Show a new secret once, with a button that copies it."""
    with ui.dialog().props("persistent") as dialog, ui.card():
        ui.label(title).props("role=heading aria-level=2")
        ui.label("Copy it now. It is not shown again.").classes("tally-quiet")
        text = ui.label(secret).classes("text-weight-bold")
        text.style("font-family: monospace; overflow-wrap: anywhere").props("data-secret=1")
        with ui.row():
            copy = ui.button("Copy", icon="content_copy")
            copy.on(
                "click",
                js_handler="(event) => navigator.clipboard.writeText("
                f"document.getElementById('{text.html_id}').innerText)",
            )
            ui.button("Done", on_click=lambda: dialog.set_value(False)).props("flat")
    dialog.value = True
