"""Exports of a table or a query: CSV and JSON lines, streamed and bounded."""

import csv
import io
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tally.console.access import SESSION
from tally.console.context import ConsoleContext
from tally.console.data_pages.edits import value_text
from tally.console.data_pages.reads import ItemQuery, read_items
from tally.console.data_pages.redaction import masked_names, visible
from tally.console.data_pages.table import find_shown_table
from tally.errors import TallyError
from tally.instance.console_sessions import ConsoleSession
from tally.settings import MASK
from tally.store.schema import Table
from tally.store.values import Item

MAX_EXPORTED: Final = 10_000
MEDIA_TYPES: Final = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
# Spreadsheets evaluate cells that start with these.
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
# The column of the attributes that the table does not declare, as JSON.
OTHER: Final = "(other attributes)"


class ExportRoute:
    """`GET /data/{name}/export`: up to 10,000 items, with masked attributes."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self.route = Route("/data/{name}/export", self._export)

    async def _export(self, request: Request) -> Response:
        table = find_shown_table(self._context, request.path_params["name"])
        kind = request.query_params.get("format", "jsonl")
        if table is None or kind not in MEDIA_TYPES:
            return PlainTextResponse("There is no such export", 404)
        query = ItemQuery.of(request.query_params)
        session: ConsoleSession = getattr(request.state, SESSION)
        pages = read_items(self._context.engine, table, query, MAX_EXPORTED)
        try:
            # An error of the query gets a status; a later one can only end the stream.
            first = await anext(pages)
            await self._context.operators.record(
                session.operator, "table_export", f"data/{table.name}", **query.parameters()
            )
        except TallyError as error:
            return PlainTextResponse(error.message, 400)
        lines = _csv_lines if kind == "csv" else _json_lines
        return StreamingResponse(
            lines(table, first, pages),
            media_type=MEDIA_TYPES[kind],
            headers={
                "Content-Disposition": f'attachment; filename="{table.name}.{kind}"',
                "Cache-Control": "no-store",
            },
        )


async def _json_lines(
    _: Table, first: list[Item], pages: AsyncIterator[list[Item]]
) -> AsyncIterator[str]:
    """Write DynamoDB JSON, which keeps the types; a masked attribute is a string."""
    yield "".join(map(_json_line, first))
    async for items in pages:
        yield "".join(map(_json_line, items))


def _json_line(item: Item) -> str:
    hidden = masked_names(item)
    shown = {name: MASK if name in hidden else value for name, value in item.items()}
    return f"{{{','.join(f'{_quoted(name)}:{value_text(it)}' for name, it in shown.items())}}}\n"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


async def _csv_lines(
    table: Table, first: list[Item], pages: AsyncIterator[list[Item]]
) -> AsyncIterator[str]:
    declared = (attribute.name for attribute in table.attributes)
    columns = list(dict.fromkeys([*table.key_names, *declared]))
    yield _csv_rows([[*columns, OTHER]]) + _csv_rows([_csv_row(columns, it) for it in first])
    async for items in pages:
        yield _csv_rows([_csv_row(columns, item) for item in items])


def _csv_row(columns: list[str], item: Mapping[str, Any]) -> list[str]:
    shown = visible(item)
    others = {name: value for name, value in shown.items() if name not in columns}
    cells = [_csv_cell(shown[name]) if name in shown else "" for name in columns]
    return [*cells, _csv_cell(others) if others else ""]


def _csv_cell(value: Any) -> str:
    if not isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return f"'{value}" if value.startswith(FORMULA_STARTS) else value


def _csv_rows(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
