"""The page of backups: creates, lists and downloads them.

A backup contains the keys of the installation: only operators may download one, and each download
is in the audit trail.
"""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from nicegui import ui
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from tally.backup.create import create_backup
from tally.backup.errors import BackupFailed
from tally.console.access import SESSION, page_session
from tally.console.context import ConsoleContext
from tally.console.formatting import format_size
from tally.console.operations.elements import TIME_CELL, time_text
from tally.console.shell import Shell, card, empty_state
from tally.errors import Conflict, Forbidden, Unavailable
from tally.instance.console_sessions import ConsoleSession
from tally.kit.clock import EPOCH
from tally.kit.operators import check_may_change
from tally.settings import Settings

REFRESH_SECONDS: Final = 5.0
PRIVATE_DIRECTORY: Final = 0o700
ABOUT: Final = (
    "A backup contains the embedded store, the embedded PostgreSQL and the keys. "
    'Restore it with "tally restore", and store it encrypted.'
)
COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "created", "label": "Created", "field": "created", "align": "left", "sortable": True},
    {"name": "name", "label": "File", "field": "name", "align": "left"},
    {"name": "size", "label": "Size", "field": "size", "align": "right"},
]
DOWNLOAD_CELL: Final = """
<q-td :props="props"><a class="text-primary" download
:href="'backups/' + props.row.name">{{ props.row.name }}</a></q-td>
"""
_file_name: Final = re.compile(r"tally-[0-9]{8}-[0-9]{6}\.tar")


def backup_directory(settings: Settings) -> Path:
    """Return the directory of the backups; by default it is next to the data directory."""
    if settings.backup_dir is not None:
        return settings.backup_dir
    data_dir = settings.data_dir.resolve()
    return data_dir.with_name(f"{data_dir.name}-backups")


def list_backups(directory: Path) -> list[Path]:
    """Return the backups in the directory, newest first."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if _file_name.fullmatch(path.name)]
    return sorted((path for path in found if path.is_file()), reverse=True)


def add_backup_page(shell: Shell, context: ConsoleContext) -> None:
    creating = asyncio.Lock()

    @shell.page("/operations/backups", "Backups", ABOUT)
    async def backups() -> None:
        view = BackupView(context, creating)
        view.show()
        await view.refresh()
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)


class BackupView:
    """The page of one visitor; all pages share `creating`, so that one backup runs at a time."""

    def __init__(self, context: ConsoleContext, creating: asyncio.Lock) -> None:
        self._context = context
        self._settings = context.settings
        self._directory = backup_directory(context.settings)
        self._creating = creating

    def show(self) -> None:
        with card("Backups", about=f"Files in {self._directory}, readable by their owner only."):
            for reminder in _reminders(self._settings):
                ui.label(reminder).classes("tally-quiet")
            with ui.row().classes("items-center gap-3"):
                create = ui.button("Create backup", icon="save")
                self._status = ui.label().classes("tally-quiet").props("role=status")
            self._table = (
                ui.table(columns=COLUMNS, rows=[], row_key="name", pagination=25)
                .classes("w-full")
                .props("dense flat hide-no-data")
            )
            self._table.add_slot("body-cell-created", TIME_CELL)
            if page_session().operator.may_change:
                self._table.add_slot("body-cell-name", DOWNLOAD_CELL)
            with ui.column() as self._empty:
                empty_state("No backup has been created here.")
        self._context.changes.control(create, self._create)

    async def refresh(self) -> None:
        rows = await asyncio.to_thread(_rows, self._directory)
        self._empty.set_visibility(not rows)
        if rows != self._table.rows:
            self._table.rows = rows
            self._table.update()

    async def _create(self) -> None:
        if self._creating.locked():
            raise Conflict("A backup is being created already")
        async with (
            self._creating,
            self._context.changes.audited("backup_create", str(self._directory)),
        ):
            self._status.set_text("Creating…")
            try:
                self._directory.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
                created = await create_backup(
                    self._settings.data_dir,
                    self._directory,
                    self._context.clock,
                    self._settings.backup_key,
                )
            except (BackupFailed, OSError) as error:
                self._status.set_text("")
                raise Unavailable(f"The backup failed: {error}") from error
        self._status.set_text(f"Created {created.path.name}")
        await self.refresh()


def _rows(directory: Path) -> list[dict[str, str]]:
    return [
        {
            "name": path.name,
            "size": format_size(path.stat().st_size),
            "created": time_text(EPOCH + timedelta(seconds=path.stat().st_mtime)),
        }
        for path in list_backups(directory)
    ]


def _reminders(settings: Settings) -> list[str]:
    found = []
    if settings.store_engine == "dynamodb":
        found.append("The tables are in DynamoDB: back them up there.")
    if settings.scoreboard_database_url is not None:
        found.append("The scores are in your PostgreSQL server: back them up there.")
    return found


class BackupRoute:
    """`GET /operations/backups/{name}`: the file, for operators only."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._directory = backup_directory(context.settings)
        self.route = Route("/operations/backups/{name}", self._download)

    async def _download(self, request: Request) -> Response:
        session: ConsoleSession = getattr(request.state, SESSION)
        name = request.path_params["name"]
        try:
            check_may_change(session.operator)
        except Forbidden as error:
            return PlainTextResponse(error.message, 403)
        found = {path.name: path for path in list_backups(self._directory)}
        if name not in found:
            return PlainTextResponse("There is no such backup", 404)
        try:
            await self._context.operators.record(session.operator, "backup_download", name)
        except Unavailable as error:
            return PlainTextResponse(error.message, 503)
        headers = {"Cache-Control": "no-store"}
        return FileResponse(
            found[name], media_type="application/x-tar", filename=name, headers=headers
        )
