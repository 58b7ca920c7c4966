"""The match list: live, upcoming and finished matches."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.formatting import format_ago, format_span
from tally.console.links import block_link, match_path
from tally.console.shell import Region, empty_state
from tally.cricket.service.queries.matches import MatchFilter, MatchView, TeamInMatch
from tally.cricket.wiring.backend import Cricket

MAX_MATCHES: Final = 40
REFRESH_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class _MatchRow:
    """What the list shows of a match; equal rows are not rendered again."""

    match_id: str
    description: str
    teams: tuple[TeamInMatch, TeamInMatch]
    state: str
    note: str
    is_live: bool
    is_over: bool
    is_stale: bool


async def show_match_list(context: ConsoleContext, cricket: Cricket) -> None:
    match_list = Region(ui.column().classes("w-full gap-4"))

    async def refresh() -> None:
        views, _ = await cricket.services.queries.matches.page(MatchFilter(), MAX_MATCHES, None)
        rows = [_row(view, context.clock.now()) for view in views]
        match_list.show(rows, lambda: _lists(rows))

    await refresh()
    ui.timer(REFRESH_SECONDS, refresh, immediate=False)


def _row(view: MatchView, now: datetime) -> _MatchRow:
    fixture = view.fixture
    wait = (datetime.fromisoformat(fixture.start_time) - now).total_seconds()
    when = f"starts in {format_span(wait)}" if wait > 0 else f"started {format_ago(-wait)}"
    return _MatchRow(
        match_id=fixture.match_id,
        description=f"{view.league_name}, {fixture.match_type}, {when}",
        teams=view.teams,
        state=_state(view),
        note=fixture.note,
        is_live=fixture.is_live,
        is_over=view.is_over,
        is_stale=view.is_stale,
    )


def _state(view: MatchView) -> str:
    state = "live" if view.fixture.is_live else view.fixture.status.value.replace("_", " ")
    return f"{state}, held" if view.fixture.is_held else state


def _lists(rows: Sequence[_MatchRow]) -> None:
    if not rows:
        empty_state("No matches yet. The first sync imports them.")
    live = [row for row in rows if row.is_live]
    over = [row for row in rows if row.is_over and not row.is_live]
    upcoming = [row for row in rows if not row.is_over and not row.is_live]
    for title, section in (
        ("Live matches", live),
        ("Upcoming", upcoming),
        ("Finished", over[::-1]),
    ):
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
                ui.label(match.description).classes("tally-quiet tally-small")
            with ui.row().classes("items-center gap-2 no-wrap"):
                if match.is_stale:
                    ui.badge("stale", color="warning")
                ui.badge(match.state, color="negative" if match.is_live else "secondary")
        if match.note:
            ui.label(match.note)
