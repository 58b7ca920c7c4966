"""The page of named boards: live standings of the open season, closed seasons, and a new board."""

from functools import partial
from typing import Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.formatting import pluralize
from tally.console.links import link, player_path
from tally.console.local_time import local_time
from tally.console.shell import Region, Shell, card, empty_state, not_started
from tally.errors import TallyError
from tally.scoreboard.model.boards import (
    Board,
    BoardOperator,
    BoardOrder,
    BoardRules,
    ResetSchedule,
    Season,
)
from tally.scoreboard.model.scores import LeaderboardPage
from tally.scoreboard.service.boards import Boards
from tally.scoreboard.wiring import Scoreboard

ROWS: Final = 10
MAX_BOARDS: Final = 100
MAX_SEASONS: Final = 10
ABOUT: Final = (
    "Named boards and their seasons. A season closes at its reset, and its ranks are final."
)


def add_board_pages(shell: Shell, context: ConsoleContext) -> None:
    scoreboard = context.backend("scoreboard", Scoreboard)

    @shell.page("/scoreboard/boards", "Boards", ABOUT)
    async def boards() -> None:
        if scoreboard is None:
            not_started("scoreboard")
            return
        view = BoardView(context, scoreboard.services.boards)
        await view.show()
        ui.timer(1.0, view.refresh, immediate=False)


class BoardView:
    """The page of one visitor."""

    def __init__(self, context: ConsoleContext, boards: Boards) -> None:
        self._context = context
        self._boards = boards
        # The closed season that is shown; None is the open one.
        self._number: int | None = None

    async def show(self) -> None:
        with ui.element("div").classes("tally-main-side"):
            with card("Standings"):
                self._chosen = ui.select({}, label="Board", on_change=self._choose).classes("w-64")
                with ui.row().classes("gap-1 tally-quiet"):
                    self._status = ui.label().props("data-season=1 role=status")
                    self._closed = Region(ui.row())
                self._table = Region(ui.column().classes("w-full gap-0"))
            with ui.column().classes("gap-4 w-full"):
                with card("Closed seasons", about="Select a season for its final standings."):
                    self._seasons = Region(ui.column().classes("gap-1"))
                self._show_form()
        await self.refresh()

    def _show_form(self) -> None:
        with card("New board"):
            self._id = ui.input("ID").props("hint='Lower-case letters, digits, - and _'")
            self._name = ui.input("Name")
            self._order = ui.select([order.value for order in BoardOrder], label="Order").classes(
                "w-48"
            )
            self._order.value = BoardOrder.DESC.value
            self._operator = ui.select(
                [each.value for each in BoardOperator], label="Operator"
            ).classes("w-48")
            self._operator.value = BoardOperator.SUM.value
            self._cron = ui.input("Reset (cron)").props("hint='Empty: never. 0 0 * * MON'")
            self._zone = ui.input("Time zone", value="UTC")
            self._error = ui.label().classes("text-negative").props("role=alert")
            button = ui.button("Create board").props("data-create-board=1")
        self._context.changes.control(button, self._create)

    async def _create(self) -> None:
        reset = ResetSchedule(self._cron.value, self._zone.value) if self._cron.value else None
        rules = BoardRules(
            self._name.value or self._id.value,
            BoardOrder(self._order.value),
            BoardOperator(self._operator.value),
            reset,
        )
        try:
            async with self._context.changes.audited("board_create", self._id.value):
                board, _ = await self._boards.create(self._id.value, rules)
        except TallyError as error:
            self._error.set_text(error.message)
            return
        self._error.set_text("")
        await self.refresh()
        self._chosen.set_value(board.board_id)

    async def _choose(self) -> None:
        self._number = None
        await self.refresh()

    async def _select_season(self, number: int | None) -> None:
        self._number = number
        await self.refresh()

    async def refresh(self) -> None:
        """Show the chosen board as it is now; the open season changes when its reset comes."""
        try:
            found = await self._boards.find_page(MAX_BOARDS)
            names = {board.board_id: board.rules.name for board in found}
            if self._chosen.options != names:
                self._chosen.set_options(names, value=self._chosen.value or next(iter(names), None))
            if self._chosen.value is not None:
                await self._show_board(self._chosen.value)
            else:
                self._status.set_text("No boards yet. Create the first one with the form.")
        except TallyError as error:
            self._status.set_text(error.message)

    async def _show_board(self, board_id: str) -> None:
        board, page = await self._boards.top(board_id, ROWS)
        seasons = await self._boards.find_seasons(board_id, MAX_SEASONS)
        self._seasons.show(seasons, partial(self._draw_seasons, seasons))
        closed_at = None
        if self._number is None:
            self._status.set_text(self._describe(board, page))
        else:
            season, page = await self._boards.season_top(board_id, self._number, ROWS)
            self._status.set_text(
                f"Season {season.number}, final, {_players(season.players)}, closed"
            )
            closed_at = season.ended_at
        self._closed.show(closed_at, lambda: closed_at and local_time(closed_at))
        self._table.show(page.standings, partial(_draw_standings, page))

    def _describe(self, board: Board, page: LeaderboardPage) -> str:
        text = f"Season {board.season}, {_players(page.total_players)}"
        if board.ends_at is None:
            return f"{text}, never resets"
        left = max(0, round((board.ends_at - self._context.clock.now()).total_seconds()))
        return f"{text}, closes in {left // 3600}:{left // 60 % 60:02}:{left % 60:02}"

    def _draw_seasons(self, seasons: list[Season]) -> None:
        if not seasons:
            empty_state("No season has been closed.")
            return
        ui.button("Open season", on_click=lambda: self._select_season(None)).props("flat no-caps")
        for season in seasons:
            with (
                ui.button(on_click=partial(self._select_season, season.number))
                .props("flat no-caps")
                .classes("tally-season"),
                ui.row().classes("gap-1"),
            ):
                ui.label(f"Season {season.number}: {_players(season.players)}, until")
                local_time(season.ended_at)


def _players(count: int) -> str:
    return f"{count:,} {pluralize(count, 'player', 'players')}"


def _draw_standings(page: LeaderboardPage) -> None:
    if not page.standings:
        empty_state("No player has a score in this season.")
    for row in page.standings:
        with ui.row().classes("w-full items-center q-px-sm no-wrap tally-numbers"):
            ui.label(str(row.rank)).classes("text-weight-bold").style("width: 2rem")
            if row.user_id:
                link(row.username, player_path(row.user_id)).classes("col ellipsis")
            else:
                ui.label(row.username).classes("col ellipsis tally-quiet")
            ui.label(f"{row.score:,}").classes("text-weight-medium")
