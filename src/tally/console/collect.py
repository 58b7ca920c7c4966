"""The collect pages: the list of athletes with a search, and the page of each athlete."""

from collections.abc import Sequence
from typing import Any, Final

from nicegui import ui

from tally.collect.model.accounts import AccountDeletion
from tally.collect.wiring import Collect
from tally.console.athlete import AthleteView
from tally.console.athletes import Athlete, AthleteDirectory
from tally.console.context import ConsoleContext
from tally.console.formatting import format_ago, pluralize
from tally.console.links import address, address_cell, athlete_path
from tally.console.local_time import iso_time, local_time, time_cell
from tally.console.search import SearchResult
from tally.console.shell import (
    Region,
    Shell,
    card,
    empty_state,
    heading,
    not_started,
    show_not_found,
)
from tally.errors import TallyError

ABOUT: Final = "Workouts arrive from Strava. Each twelfth of a goal mints one part, permanently."
ABOUT_ATHLETES: Final = (
    "With activity in the last 90 days, newest first. "
    "The search also finds any other athlete by the whole user ID or Strava ID."
)
MAX_DELETIONS: Final = 15
REFRESH_SECONDS: Final = 5.0
ATHLETE_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Athlete", "field": "name", "align": "left"},
    {"name": "active", "label": "Last activity", "field": "active", "align": "left"},
    {"name": "id", "label": "User ID", "field": "id", "align": "left"},
]


def add_collect_pages(shell: Shell, context: ConsoleContext) -> None:
    collect = context.backend("collect", Collect)
    directory = None if collect is None else AthleteDirectory(collect, context)
    if directory is not None:
        shell.search.add("Athletes", lambda text: _find(directory, text))

    @shell.page("/collect", "Collect", ABOUT)
    async def athletes() -> None:
        if collect is None or directory is None:
            not_started("collect")
            return
        await _AthleteList(context, directory).show()
        deletions = DeletionsCard(collect)
        await deletions.refresh()
        ui.timer(REFRESH_SECONDS, deletions.refresh)

    @shell.page("/collect/athletes/{user_id}", "Athlete", is_headed=False)
    async def athlete(user_id: str) -> None:
        if collect is None or directory is None:
            heading("Athlete")
            not_started("collect")
            return
        try:
            found = await directory.get(user_id)
        except TallyError as error:
            show_not_found("Athlete", error.message, "/collect", "All athletes")
            return
        heading(found.name, f"User ID {found.user_id}")
        view = AthleteView(collect, context, user_id)
        view.build()
        await view.follow()


async def _find(directory: AthleteDirectory, text: str) -> list[SearchResult]:
    return [
        SearchResult(athlete.name, athlete_path(athlete.user_id), f"User ID {athlete.user_id}")
        for athlete in await directory.find(text)
    ]


class _AthleteList:
    """The list of athletes that one visitor sees."""

    def __init__(self, context: ConsoleContext, directory: AthleteDirectory) -> None:
        self._clock = context.clock
        self._directory = directory

    async def show(self) -> None:
        with card("Athletes", about=ABOUT_ATHLETES):
            self._text = ui.input("Find an athlete", on_change=self.refresh).classes("w-full")
            self._text.props("clearable debounce=300 hint='Name, e-mail, user ID or Strava ID'")
            self._table = ui.table(
                columns=ATHLETE_COLUMNS, rows=[], row_key="id", pagination=15
            ).classes("w-full")
            self._table.props("dense flat")
            self._table.add_slot("body-cell-name", address_cell("name"))
            self._table.add_slot("body-cell-active", time_cell("active"))
            self._empty = Region(ui.column().classes("w-full"))
        await self.refresh()
        ui.timer(REFRESH_SECONDS, self.refresh, immediate=False)

    async def refresh(self) -> None:
        text = str(self._text.value or "").strip()
        try:
            found = await self._directory.find(text)
        except TallyError as error:
            found, message = [], error.message
        else:
            message = f'No athlete matches "{text}".' if text else "No athlete has signed in yet."
        rows = [self._row(athlete) for athlete in found]
        if rows != self._table.rows:
            self._table.rows = rows
            self._table.update()
        self._table.set_visibility(bool(rows))
        shown = "" if rows else message
        self._empty.show(shown, lambda: empty_state(shown) if shown else None)

    def _row(self, athlete: Athlete) -> dict[str, str]:
        seen = athlete.last_active_at
        age = 0.0 if seen is None else (self._clock.now() - seen).total_seconds()
        return {
            "id": athlete.user_id,
            "name": athlete.name,
            "href": address(athlete_path(athlete.user_id)),
            "active": "" if seen is None else iso_time(seen),
            "active_label": "more than 90 days ago" if seen is None else format_ago(age),
        }


class DeletionsCard:
    """The account deletions in progress; hidden while there are none."""

    def __init__(self, collect: Collect) -> None:
        self._deletions = collect.services.deletions
        about = "In progress. Every step is retried until it succeeds."
        with card("Account deletions", about=about) as self._card:
            self._list = Region(ui.column().classes("gap-2 w-full"))
        self._card.set_visibility(False)

    async def refresh(self) -> None:
        try:
            found, _ = await self._deletions.page(MAX_DELETIONS, None)
        except TallyError:
            return  # the list of athletes reports it
        self._card.set_visibility(bool(found))
        self._list.show(found, lambda: _show_deletions(found))


def _show_deletions(deletions: Sequence[AccountDeletion]) -> None:
    for deletion in deletions:
        steps = ", ".join(step.value for step in deletion.remaining)
        retry = deletion.retry
        noun = pluralize(retry.attempts, "failed attempt", "failed attempts")
        failures = f"{retry.attempts} {noun}, last error {retry.last_error}"
        with ui.row().classes("gap-x-3 gap-y-0 items-baseline"):
            local_time(deletion.requested_at, "second").classes(
                "tally-quiet tally-small tally-numbers"
            )
            ui.label(deletion.user_id).classes("tally-small text-weight-medium")
            ui.label(f"Remaining: {steps}").classes("tally-small")
            if retry.attempts:
                ui.label(failures).classes("tally-quiet tally-small")
