"""The scoreboard page: live leaderboard and player history; in the demo also a game."""

from typing import Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.demo_game import DemoGame, show_redis_switch
from tally.console.leaderboard import LeaderboardView
from tally.console.links import link
from tally.console.shell import Shell, not_started
from tally.scoreboard.wiring import Scoreboard

ABOUT: Final = (
    "Scores are verified by the game server and counted once. "
    "PostgreSQL is the source of truth; Redis serves reads."
)


def add_scoreboard_pages(shell: Shell, context: ConsoleContext) -> None:
    scoreboard = context.backend("scoreboard", Scoreboard)

    @shell.page("/scoreboard", "Scoreboard", ABOUT)
    async def board() -> None:
        if scoreboard is None:
            not_started("scoreboard")
            return
        link("Boards and seasons", "/scoreboard/boards").props("data-boards=1")
        view = LeaderboardView(scoreboard)
        with ui.element("div").classes("tally-main-side"):
            view.show_board()
            with ui.column().classes("gap-4 w-full"):
                if context.outside is not None:
                    DemoGame(context, scoreboard, view).show()
                with view.show_redis():
                    if context.outside is not None:
                        show_redis_switch(context, scoreboard)
                view.show_history()
        await view.refresh()
        ui.timer(1.0, view.refresh, immediate=False)
