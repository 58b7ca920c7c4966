"""Cricket's pages: the matches, and one match as it goes on, with its followers and a phone that follows it."""

from typing import Any, Final

from nicegui import ui

from tally.console.desk import Desk
from tally.console.iphone import Iphone
from tally.console.shell import Shell, card, not_started, nothing_here
from tally.cricket.assembly import Cricket
from tally.cricket.model import book
from tally.cricket.model.display import symbol_of
from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import Ball, InningsFeed, MatchFeed
from tally.cricket.model.texts import sentence_of, title_of
from tally.cricket.render import match_body
from tally.cricket.service.matches import MatchView, Wanted
from tally.cricket.service.pipeline import memory_of
from tally.errors import TallyError

SHOWN: Final = 40
EVENTS: Final = 12
BALLS: Final = 36
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


def put_cricket(shell: Shell, desk: Desk) -> None:
    cricket = desk.backend("cricket", Cricket)

    @shell.page("/cricket", "Cricket")
    async def matches() -> None:
        if cricket is None:
            not_started("cricket")
            return
        await _matches(cricket)

    @shell.page("/cricket/{match_id}", "Match")
    async def match(match_id: str) -> None:
        if cricket is None:
            not_started("cricket")
            return
        try:
            await cricket.reading.matches.get(match_id)
        except TallyError as error:
            nothing_here(error.message)
            return
        await _MatchPage(desk, cricket, match_id).put()


async def _matches(cricket: Cricket) -> None:
    listed = ui.column().classes("w-full gap-3")

    async def refresh() -> None:
        found, _ = await cricket.reading.matches.page(Wanted(), SHOWN, None)
        found = tuple(sorted(found, key=lambda view: (not view.fixture.is_live, view.fixture.start_time)))
        listed.clear()
        with listed:
            if not found:
                nothing_here("No matches yet: they come with the first sync.")
            for view in found:
                _match_row(view)

    await refresh()
    ui.timer(3.0, refresh)


def _match_row(view: MatchView) -> None:
    body = match_body(view)
    with ui.card().classes("tally-card w-full cursor-pointer").props("tabindex=0 role=link") as row:
        row.on("click", lambda: ui.navigate.to(f"/cricket/{body.match_id}"))
        row.on("keydown.enter", lambda: ui.navigate.to(f"/cricket/{body.match_id}"))
        with ui.row().classes("w-full items-center justify-between"):
            with ui.column().classes("gap-0"):
                for team in body.teams:
                    ui.label(f"{team.name} {' & '.join(team.scores)}").classes("text-subtitle1")
                ui.label(f"{body.league.name}, {body.match_type}, {body.start_time}").classes("tally-quiet")
            with ui.row().classes("items-center gap-2"):
                if body.is_stale:
                    ui.badge("stale", color="warning")
                ui.badge(
                    "live" if body.is_live else body.status.replace("_", " "), color="negative" if body.is_live else "secondary"
                )
        if body.note:
            ui.label(body.note)


class _MatchPage:
    """One match for one visitor."""

    def __init__(self, desk: Desk, cricket: Cricket, match_id: str) -> None:
        self._cricket = cricket
        self._match_id = match_id
        self._iphone = Iphone(desk, self._match_id)

    async def put(self) -> None:
        with ui.grid(columns="minmax(0, 3fr) 340px").classes("w-full gap-4"):
            with ui.column().classes("gap-4"):
                with card("Score"):
                    self._score = ui.label().classes("tally-figure")
                    self._line = ui.label()
                    self._balls = ui.row().classes("gap-1").props("aria-label='Last balls'")
                with card("Run rate"):
                    self._chart = ui.echart(_run_rate_chart()).classes("w-full h-56").props("aria-label='Runs by over'")
                with card("Scorecard"):
                    self._cards = ui.column().classes("w-full")
            with ui.column().classes("gap-4"):
                self._iphone.put()
                with card("Followers"):
                    self._followers = ui.column().classes("gap-1")
                with card("Key events"):
                    self._events = ui.column().classes("gap-1").props("data-events=1")
        await self.refresh()
        ui.timer(2.0, self.refresh)

    async def refresh(self) -> None:
        try:
            shown = await self._cricket.reading.displays.get(self._match_id, None)
            heard = await self._cricket.reading.feeds.get(self._match_id)
            state = await self._cricket.reading.admin.state(self._match_id)
        except TallyError as error:
            self._line.set_text(error.message)
            return
        display = shown.content
        teams = ", ".join(f"{team['code']} {team.get('score', '')}".strip() for team in display["teams"])
        self._score.set_text(teams)
        self._line.set_text(display["lines"].get("expanded") or display["lines"]["lockScreen"])
        balls = book.decode(state.processing.content).told if state.processing is not None else ()
        self._show_balls(balls)
        if heard is not None:
            self._show_cards(heard.feed)
        self._show_rate(balls)
        self._show_followers(state.followers, state.activities)
        self._show_events(memory_of(state.active).told[-EVENTS:] if state.active is not None else ())
        self._iphone.refresh()

    def _show_balls(self, balls: tuple[Ball, ...]) -> None:
        self._balls.clear()
        with self._balls:
            for ball in balls[-BALLS:]:
                symbol = symbol_of(ball)
                colour = "negative" if symbol == "W" else "positive" if symbol in {"4", "6"} else "secondary"
                ui.badge(symbol, color=colour)

    def _show_cards(self, feed: MatchFeed) -> None:
        self._cards.clear()
        with self._cards:
            for innings in reversed(feed.innings):
                _scorecard(feed, innings)

    def _show_rate(self, balls: tuple[Ball, ...]) -> None:
        self._chart.options["series"] = [
            {"name": f"Innings {number}", "type": "line", "showSymbol": False, "data": _worm(balls, number)}
            for number in sorted({ball.innings for ball in balls})
        ]
        self._chart.update()

    def _show_followers(self, followers: int, activities: dict[str, int]) -> None:
        self._followers.clear()
        with self._followers:
            ui.label(f"{followers} follow this match")
            for status in ("pending", "active", "ended"):
                ui.label(f"Live Activities {status}: {activities.get(status, 0)}").classes("tally-quiet")

    def _show_events(self, events: tuple[KeyEvent, ...]) -> None:
        self._events.clear()
        with self._events:
            if not events:
                nothing_here("Nothing has happened yet.")
            for event in reversed(events):
                with ui.row().classes("gap-2 no-wrap"):
                    ui.label(f"{event.over}.{event.number}").classes("tally-quiet")
                    ui.label(f"{title_of(event)} {sentence_of(event)}")


def _scorecard(feed: MatchFeed, innings: InningsFeed) -> None:
    side = feed.side(innings.team_id)
    name = side.name if side is not None else innings.team_id
    ui.label(f"{name} {innings.runs}/{innings.wickets} ({innings.overs})").classes("text-subtitle1")
    for columns, rows in ((BATTER_COLUMNS, _batters(innings)), (BOWLER_COLUMNS, _bowlers(innings))):
        ui.table(columns=columns, rows=rows, row_key="name").classes("w-full").props("dense flat hide-pagination")


def _batters(innings: InningsFeed) -> list[dict[str, Any]]:
    return [
        {
            "name": line.name,
            "how": line.how_out.value if line.how_out is not None else ("batting" if line.is_at_crease else "not out"),
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


def _worm(balls: tuple[Ball, ...], innings: int) -> list[list[float]]:
    """Runs so far after each ball of an innings."""
    total, points = 0, []
    for ball in balls:
        if ball.innings == innings:
            total += ball.runs_total
            points.append([round(ball.over + ball.number / 6, 2), float(total)])
    return points


def _run_rate_chart() -> dict[str, Any]:
    return {
        "animation": False,
        "grid": {"left": 45, "right": 15, "top": 30, "bottom": 30},
        "legend": {"top": 0},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "value", "name": "overs", "nameLocation": "middle", "nameGap": 20},
        "yAxis": {"type": "value", "min": 0},
        "series": [],
    }
