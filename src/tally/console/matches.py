"""The match list: live, upcoming and finished matches."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.formatting import format_ago, format_span
from tally.console.shell import Region, empty_state, link_to
from tally.cricket.api.render import match_body
from tally.cricket.api.schemas import MatchBody
from tally.cricket.model.feed import MatchStatus
from tally.cricket.service.queries.matches import Wanted
from tally.cricket.wiring.backend import Cricket

MAX_MATCHES: Final = 40
REFRESH_SECONDS: Final = 3.0


async def show_match_list(context: ConsoleContext, cricket: Cricket) -> None:
    match_list = Region(ui.column().classes("w-full gap-4"))

    async def refresh() -> None:
        found, _ = await cricket.reading.matches.page(Wanted(), MAX_MATCHES, None)
        rows = [(body, _when(body, context.clock.now())) for body in map(match_body, found)]
        match_list.show(rows, lambda: _lists(rows))

    await refresh()
    ui.timer(REFRESH_SECONDS, refresh, immediate=False)


def _when(body: MatchBody, now: datetime) -> str:
    wait = (datetime.fromisoformat(body.start_time) - now).total_seconds()
    return f"starts in {format_span(wait)}" if wait > 0 else f"started {format_ago(-wait)}"


def _lists(rows: Sequence[tuple[MatchBody, str]]) -> None:
    if not rows:
        empty_state("No matches yet. The first sync imports them.")
    live = [row for row in rows if row[0].is_live]
    over = [row for row in rows if row[0].is_over and not row[0].is_live]
    upcoming = [row for row in rows if not row[0].is_over and not row[0].is_live]
    for title, section in (
        ("Live matches", live),
        ("Upcoming", upcoming),
        ("Finished", over[::-1]),
    ):
        if section:
            ui.label(title).classes("text-h6").props("role=heading aria-level=2")
            with ui.element("div").classes("tally-halves"):
                for body, when in section:
                    _match(body, when)


def _state(body: MatchBody) -> str:
    if body.is_live:
        return "live"
    # Archived while it was live, because the score service stopped listing it.
    is_cut_short = body.is_over and not MatchStatus(body.status).is_over
    return "no result received" if is_cut_short else body.status.replace("_", " ")


def _match(body: MatchBody, when: str) -> None:
    with ui.card().classes("tally-card tally-tile w-full") as row:
        link_to(row, f"/cricket/{body.match_id}")
        with ui.row().classes("w-full items-start justify-between no-wrap"):
            with ui.column().classes("gap-0"):
                for team in body.teams:
                    with ui.row().classes("gap-2"):
                        ui.label(team.name).classes("text-subtitle1")
                        ui.label(" & ".join(team.scores)).classes(
                            "text-subtitle1 text-weight-bold tally-numbers"
                        )
                ui.label(f"{body.league.name}, {body.match_type}, {when}").classes(
                    "tally-quiet tally-small"
                )
            with ui.row().classes("items-center gap-2 no-wrap"):
                if body.is_stale:
                    ui.badge("stale", color="warning")
                ui.badge(_state(body), color="negative" if body.is_live else "secondary")
        if body.note:
            ui.label(body.note)
