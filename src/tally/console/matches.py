"""The match list: live, upcoming and finished matches."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.formatting import format_ago, format_span
from tally.console.links import block_link, match_path
from tally.console.local_time import local_time
from tally.console.search import SearchResult, contains_words
from tally.console.shell import Region, empty_state
from tally.cricket.service.queries.matches import MatchFilter, MatchView, TeamInMatch
from tally.cricket.wiring.backend import Cricket
from tally.errors import NotFound

MAX_MATCHES: Final = 40
MAX_SEARCHED: Final = 200
REFRESH_SECONDS: Final = 3.0
LIVE: Final = "Live matches"
UPCOMING: Final = "Upcoming"
FINISHED: Final = "Finished"


@dataclass(frozen=True, slots=True)
class _MatchRow:
    """What the list shows of a match; equal rows are not rendered again."""

    match_id: str
    description: str
    start_time: str
    when: str
    teams: tuple[TeamInMatch, TeamInMatch]
    # Labels with their colours.
    badges: tuple[tuple[str, str], ...]
    note: str
    section: str


async def show_match_list(context: ConsoleContext, cricket: Cricket) -> None:
    match_list = Region(ui.column().classes("w-full gap-4"))

    async def refresh() -> None:
        views, _ = await cricket.services.queries.matches.page(MatchFilter(), MAX_MATCHES, None)
        rows = [_row(view, context.clock.now()) for view in views]
        match_list.show(rows, lambda: _lists(rows))

    await refresh()
    ui.timer(REFRESH_SECONDS, refresh, immediate=False)


async def find_matches(cricket: Cricket, text: str) -> list[SearchResult]:
    """Search the matches in the list by team, league and state, and any other by its ID."""
    queries = cricket.services.queries.matches
    views, _ = await queries.page(MatchFilter(), MAX_SEARCHED, None)
    found = [view for view in views if contains_words(text, *_search_texts(view))]
    if not found and text.isdigit():
        with suppress(NotFound):
            found = [await queries.get(text)]
    return [
        SearchResult(
            " v ".join(team.name for team in view.teams),
            match_path(view.fixture.match_id),
            f"{view.league_name}, {view.fixture.match_type}, {_state(view)}",
        )
        for view in found
    ]


def _search_texts(view: MatchView) -> tuple[str, ...]:
    names = tuple(team.name for team in view.teams)
    return (*names, view.league_name, view.fixture.match_id, _state(view))


def _row(view: MatchView, now: datetime) -> _MatchRow:
    fixture = view.fixture
    wait = (datetime.fromisoformat(fixture.start_time) - now).total_seconds()
    when = f"starts in {format_span(wait)}" if wait > 0 else f"started {format_ago(-wait)}"
    return _MatchRow(
        match_id=fixture.match_id,
        description=f"{view.league_name}, {fixture.match_type},",
        start_time=fixture.start_time,
        when=when,
        teams=view.teams,
        badges=_badges(view),
        note=fixture.note,
        section=LIVE if fixture.is_live else FINISHED if view.is_over else UPCOMING,
    )


def _badges(view: MatchView) -> tuple[tuple[str, str], ...]:
    state = (_state(view), "negative" if view.fixture.is_live else "secondary")
    return (("stale", "warning"), state) if view.is_stale else (state,)


def _state(view: MatchView) -> str:
    state = "live" if view.fixture.is_live else view.fixture.status.value.replace("_", " ")
    return f"{state}, held" if view.fixture.is_held else state


def _lists(rows: Sequence[_MatchRow]) -> None:
    if not rows:
        empty_state(
            "No matches yet. The job cricket-fixtures imports them from SportMonks; "
            "see its last run on the home page."
        )
    for title in (LIVE, UPCOMING, FINISHED):
        section = [row for row in rows if row.section == title]
        if title == FINISHED:
            section.reverse()
        if section:
            ui.label(title).classes("text-h6").props("role=heading aria-level=2")
            with ui.element("div").classes("tally-halves"):
                for row in section:
                    _match(row)


def _match(match: _MatchRow) -> None:
    with (
        block_link(match_path(match.match_id)),
        ui.card().classes("tally-card tally-tile w-full"),
    ):
        with ui.row().classes("w-full items-start justify-between no-wrap"):
            with ui.column().classes("gap-0"):
                for team in match.teams:
                    with ui.row().classes("gap-2"):
                        ui.label(team.name).classes("text-subtitle1")
                        ui.label(" & ".join(team.scores)).classes(
                            "text-subtitle1 text-weight-bold tally-numbers"
                        )
                with ui.row().classes("gap-1 tally-quiet tally-small"):
                    ui.label(match.description)
                    local_time(match.start_time, label=match.when)
            with ui.row().classes("items-center gap-2 no-wrap"):
                for label, colour in match.badges:
                    ui.badge(label, color=colour)
        if match.note:
            ui.label(match.note)
