"""The cricket pages: match list, and one match with its scorecard, followers and a phone."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.iphone import Iphone
from tally.console.live_updates import refresh_on_change
from tally.console.matches import find_matches, show_match_list
from tally.console.run_charts import RunCharts
from tally.console.shell import (
    Region,
    Shell,
    card,
    empty_state,
    heading,
    not_started,
    show_not_found,
)
from tally.cricket.model.ball_log import decode_ball_log
from tally.cricket.model.display import ball_symbol
from tally.cricket.model.event_texts import event_sentence, event_title
from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import Ball, InningsFeed, MatchFeed
from tally.cricket.model.pipeline import pipeline_state
from tally.cricket.wiring.backend import Cricket
from tally.errors import TallyError

MAX_EVENTS: Final = 12
MAX_BALLS: Final = 36
FOLLOWERS_SECONDS: Final = 10.0
PHONE_SECONDS: Final = 2.0
# States of a Live Activity with their labels.
STATES: Final = (
    ("pending", "Live Activities pending"),
    ("active", "Live Activities active"),
    ("ended", "Live Activities ended"),
)
BATTER_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Batter", "field": "name", "align": "left"},
    {"name": "how", "label": "", "field": "how", "align": "left"},
    {"name": "runs", "label": "R", "field": "runs", "align": "right"},
    {"name": "balls", "label": "B", "field": "balls", "align": "right"},
    {"name": "fours", "label": "4s", "field": "fours", "align": "right"},
    {"name": "sixes", "label": "6s", "field": "sixes", "align": "right"},
]
BOWLER_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Bowler", "field": "name", "align": "left"},
    {"name": "overs", "label": "O", "field": "overs", "align": "right"},
    {"name": "maidens", "label": "M", "field": "maidens", "align": "right"},
    {"name": "runs", "label": "R", "field": "runs", "align": "right"},
    {"name": "wickets", "label": "W", "field": "wickets", "align": "right"},
]


def add_cricket_pages(shell: Shell, context: ConsoleContext) -> None:
    cricket = context.backend("cricket", Cricket)
    if cricket is not None:
        shell.search.add("Matches", partial(find_matches, cricket))

    @shell.page(
        "/cricket",
        "Cricket",
        "Matches from SportMonks with live updates for followers.",
    )
    async def matches() -> None:
        if cricket is None:
            not_started("cricket")
            return
        await show_match_list(context, cricket)

    @shell.page("/cricket/{match_id}", "Match", is_headed=False)
    async def match(match_id: str) -> None:
        if cricket is None:
            heading("Match")
            not_started("cricket")
            return
        try:
            view = await cricket.services.queries.matches.get(match_id)
        except TallyError as error:
            show_not_found("Match", error.message, "/cricket", "All matches")
            return
        held = ", held by an operator" if view.fixture.is_held else ""
        heading(
            " v ".join(team.name for team in view.teams),
            f"{view.league_name}, {view.fixture.match_type}{held}",
        )
        await _MatchPage(context, cricket, match_id).build()


class _MatchPage:
    """The page of one match for one visitor."""

    def __init__(self, context: ConsoleContext, cricket: Cricket, match_id: str) -> None:
        self._context = context
        self._cricket = cricket
        self._match_id = match_id
        phones = None if context.outside is None else context.outside.phones
        self._runs = RunCharts()
        self._iphone = None if phones is None else Iphone(context, phones, match_id)

    async def build(self) -> None:
        with ui.element("div").classes("tally-phone-side"):
            with ui.column().classes("gap-4 w-full"):
                with card("Score"):
                    self._score = Region(ui.column().classes("w-full gap-1"))
                    self._line = ui.label().classes("tally-quiet")
                    self._balls = Region(ui.row().classes("gap-1").props("aria-label='Last balls'"))
                self._runs.build()
                with card("Scorecard"):
                    self._cards = Region(ui.column().classes("w-full"))
            with ui.column().classes("gap-4 w-full"):
                if self._iphone is not None:
                    self._iphone.build()
                with card("Followers", about="Followers and their Live Activities"):
                    self._followers = Region(ui.element("dl").classes("tally-facts tally-numbers"))
                with card("Key events", about="Newest first"):
                    self._events = Region(ui.column().classes("gap-2").props("data-events=1"))
        await self.refresh()
        refresh_on_change(
            lambda: self._context.updates.match(self._match_id), self.refresh, self._context.clock
        )
        # Followers and phones change without the match.
        ui.timer(FOLLOWERS_SECONDS, self.refresh, immediate=False)
        if self._iphone is not None:
            ui.timer(PHONE_SECONDS, self._iphone.refresh, immediate=False)

    async def refresh(self) -> None:
        try:
            queries = self._cricket.services.queries
            display = (await queries.displays.get(self._match_id, None)).content
            cached = await queries.feeds.get(self._match_id)
            state = await queries.admin.match_diagnostics(self._match_id)
        except TallyError as error:
            self._line.set_text(error.message)
            return
        teams = [
            (team["name"], team.get("score", ""), team.get("overs", ""))
            for team in display["teams"]
        ]
        self._score.show(teams, lambda: _score(teams))
        self._line.set_text(display["lines"].get("expanded") or display["lines"]["lockScreen"])
        balls = (
            decode_ball_log(state.processing.content).released_balls
            if state.processing is not None
            else ()
        )
        last = balls[-MAX_BALLS:]
        self._balls.show(last, lambda: _badges(last))
        if cached is not None:
            feed = cached.feed
            self._cards.show(feed.innings, lambda: _scorecards(feed))
        self._runs.show(balls)
        counts = (state.followers, *(state.activities.get(status, 0) for status, _ in STATES))
        self._followers.show(counts, lambda: _followers(counts))
        events = (
            pipeline_state(state.active).published_events[-MAX_EVENTS:]
            if state.active is not None
            else ()
        )
        self._events.show(events, lambda: _events(events))
        if self._iphone is not None:
            self._iphone.refresh()


def _score(teams: Sequence[tuple[str, str, str]]) -> None:
    for name, score, overs in teams:
        with ui.row().classes("w-full items-baseline gap-3"):
            ui.label(name).classes("text-h6")
            ui.label(score or "yet to bat").classes("tally-figure" if score else "tally-quiet")
            ui.label(f"{overs} overs" if overs else "").classes("tally-quiet")


def _badges(balls: Sequence[Ball]) -> None:
    for ball in balls:
        symbol = ball_symbol(ball)
        colour = (
            "negative" if symbol == "W" else "positive" if symbol in {"4", "6"} else "secondary"
        )
        ui.badge(symbol, color=colour)


def _followers(counts: Sequence[int]) -> None:
    labels = ("Followers", *(label for _, label in STATES))
    for count, label in zip(counts, labels, strict=True):
        with ui.element("dt").classes("text-weight-bold text-right"):
            ui.label(f"{count:,}")
        with ui.element("dd"):
            ui.label(label)


def _events(events: Sequence[KeyEvent]) -> None:
    if not events:
        empty_state("No key events yet. Wickets, boundaries and milestones appear here.")
    for event in reversed(events):
        with ui.row().classes("gap-2 no-wrap items-baseline"):
            ui.label(f"{event.over}.{event.number}").classes(
                "tally-quiet tally-small tally-numbers"
            ).style("min-width: 2.2rem")
            with ui.column().classes("gap-0"):
                ui.label(event_title(event)).classes("text-weight-medium")
                ui.label(event_sentence(event)).classes("tally-quiet tally-small")


def _scorecards(feed: MatchFeed) -> None:
    for innings in reversed(feed.innings):
        _scorecard(feed, innings)


def _scorecard(feed: MatchFeed, innings: InningsFeed) -> None:
    side = feed.side(innings.team_id)
    name = side.name if side is not None else innings.team_id
    ui.label(f"{name} {innings.runs}/{innings.wickets} ({innings.overs})").classes("text-subtitle1")
    for columns, rows in ((BATTER_COLUMNS, _batters(innings)), (BOWLER_COLUMNS, _bowlers(innings))):
        ui.table(columns=columns, rows=rows, row_key="name").classes("w-full").props(
            "dense flat hide-pagination no-data-label='Nobody yet.'"
        )


def _batters(innings: InningsFeed) -> list[dict[str, Any]]:
    return [
        {
            "name": line.name,
            "how": line.how_out.value
            if line.how_out is not None
            else ("batting" if line.is_at_crease else "not out"),
            "runs": line.runs,
            "balls": line.balls,
            "fours": line.fours,
            "sixes": line.sixes,
        }
        for line in innings.batters
    ]


def _bowlers(innings: InningsFeed) -> list[dict[str, Any]]:
    return [
        {
            "name": line.name,
            "overs": f"{line.overs}.{line.balls}",
            "maidens": line.maidens,
            "runs": line.runs,
            "wickets": line.wickets,
        }
        for line in innings.bowlers
    ]
