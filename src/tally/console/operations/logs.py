"""The page of recent log lines, filtered by request, level and text."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from nicegui import ui
from starlette.requests import Request

from tally.console.context import ConsoleContext
from tally.console.formatting import pluralize
from tally.console.operations.elements import TIME_CELL
from tally.console.shell import Shell, card
from tally.kit.logs import LEVELS
from tally.kit.recent_logs import MAX_LINES

REFRESH_SECONDS: Final = 2.0
MAX_SHOWN: Final = 200
ABOUT: Final = (
    f"The latest {MAX_LINES:,} lines of this instance since its start, in memory and with secrets"
    " masked. Lines below TALLY_LOG_LEVEL do not exist."
)
COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "time", "label": "Time", "field": "time", "align": "left"},
    {"name": "level", "label": "Level", "field": "level", "align": "left"},
    {"name": "service", "label": "Service", "field": "service", "align": "left"},
    {"name": "message", "label": "Message", "field": "message", "align": "left"},
    {"name": "request", "label": "Request ID", "field": "request", "align": "left"},
]
MESSAGE_CELL: Final = """
<q-td :props="props" style="min-width: 18rem"><div>{{ props.row.message }}</div>
<div class="tally-quiet tally-small" style="white-space: pre-wrap; overflow-wrap: anywhere">{{
props.row.data }}</div></q-td>
"""
REQUEST_CELL: Final = """
<q-td :props="props"><a v-if="props.value" class="text-primary"
:href="'logs?request=' + encodeURIComponent(props.value)">{{ props.value }}</a></q-td>
"""


def add_log_page(shell: Shell, context: ConsoleContext) -> None:
    @shell.page("/operations/logs", "Logs", ABOUT)
    def logs(request: Request) -> None:
        view = LogView(context, request.query_params)
        view.refresh()
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)


class LogView:
    """The page of one visitor."""

    def __init__(self, context: ConsoleContext, parameters: Mapping[str, str]) -> None:
        self._recent = context.recent_logs
        with card("Log lines", about=f"Newest first, at most {MAX_SHOWN}."):
            with ui.row().classes("items-end gap-3 w-full"):
                self._request = ui.input("Request ID", value=parameters.get("request", ""))
                level = parameters.get("level", "debug")
                self._level = ui.select(
                    list(LEVELS), label="From level", value=level if level in LEVELS else "debug"
                ).classes("w-32")
                self._text = ui.input("Text", value=parameters.get("text", ""))
            for field in (self._request, self._text):
                field.classes("w-72").props("clearable debounce=300")
                field.on_value_change(self._filter)
            self._level.on_value_change(self._filter)
            self._table = (
                ui.table(columns=COLUMNS, rows=[], row_key="id", pagination=50)
                .classes("w-full")
                .props("dense flat wrap-cells no-data-label='No recent line matches.'")
            )
            self._table.add_slot("body-cell-time", TIME_CELL)
            self._table.add_slot("body-cell-message", MESSAGE_CELL)
            self._table.add_slot("body-cell-request", REQUEST_CELL)
            self._count = ui.label().classes("tally-quiet").props("role=status")

    def _filter(self) -> None:
        fields = {
            "request": self._request.value,
            "level": "" if self._level.value == "debug" else self._level.value,
            "text": self._text.value,
        }
        query = urlencode({name: value for name, value in fields.items() if value})
        ui.navigate.history.replace(f"logs{'?' if query else ''}{query}")
        self.refresh()

    def refresh(self) -> None:
        lines = self._recent.find(
            request_id=(self._request.value or "").strip(),
            level=str(self._level.value),
            text=(self._text.value or "").strip(),
            limit=MAX_SHOWN,
        )
        rows = [_row(number, line) for number, line in enumerate(lines)]
        if rows != self._table.rows:
            self._table.rows = rows
            self._table.update()
        lines_text = f"{len(rows)} {pluralize(len(rows), 'line', 'lines')}"
        self._count.set_text(lines_text if rows else "No line matches.")


def _row(number: int, line: Mapping[str, Any]) -> dict[str, Any]:
    data = line["data"]
    text = data.get("exception") or (msgspec.json.encode(data).decode() if data else "")
    return {
        "id": number,
        "time": line["timestamp"].replace("T", " ").replace("Z", " UTC"),
        "level": line["level"],
        "service": line["service"],
        "message": line["message"],
        "data": text,
        "request": line["requestId"] or "",
    }
