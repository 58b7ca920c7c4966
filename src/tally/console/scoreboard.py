"""The scoreboard's page: the board with rows that move, a player's history, a button that plays, and Redis on and off."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.shell import Region, Shell, card, empty_state, not_started
from tally.errors import TallyError
from tally.kit.ids import new_uuid
from tally.scoreboard.model import Standing
from tally.scoreboard.service.accounts import AccountRegistration
from tally.scoreboard.service.sessions import Client
from tally.scoreboard.wiring import Scoreboard

ABOUT: Final = "Points that a game server has vouched for, counted once. PostgreSQL is the truth, Redis is fast."
SHOWN: Final = 10
WORTH: Final = 500
ROW_PIXELS: Final = 44
HISTORY: Final = 15


def add_scoreboard_pages(shell: Shell, context: ConsoleContext) -> None:
    scoreboard = context.backend("scoreboard", Scoreboard)

    @shell.page("/scoreboard", "Scoreboard", ABOUT)
    async def board() -> None:
        if scoreboard is None:
            not_started("scoreboard")
            return
        view = BoardView(scoreboard)
        with ui.element("div").classes("tally-main-side"):
            view.put_board()
            with ui.column().classes("gap-4 w-full"):
                view.put_play()
                view.put_redis()
                view.put_history()
        await view.refresh()
        ui.timer(1.0, view.refresh, immediate=False)


@dataclass
class BoardView:
    """What one visitor sees; whoever plays does so as a guest, made at the first click."""

    scoreboard: Scoreboard
    rows: dict[str, Region] = field(default_factory=dict)
    guest_id: str | None = None

    def put_board(self) -> None:
        with card(
            "The board, now",
            about="Rows slide as players overtake each other. Choose one for its history.",
        ):
            self.total = ui.label().classes("tally-quiet tally-small")
            self.place = (
                ui.element("div")
                .classes("relative-position w-full")
                .style(f"height: {SHOWN * ROW_PIXELS}px")
            )
            self.place.props("role=list aria-label='Leaderboard'")

    def put_play(self) -> None:
        about = "You play as a guest: the game server signs a token for you, and it is traded for points, once."
        with card("Play", about=about), ui.row().classes("items-center gap-3"):
            ui.button("Play a game", icon="sports_esports", on_click=self.play).props("data-play=1")
            self.played = ui.label()

    def put_redis(self) -> None:
        with card(
            "Redis",
            about="Without it the board is read from PostgreSQL, and nothing is lost. Try it.",
        ):
            valkey = self.scoreboard.valkey
            self.redis = ui.label()
            if valkey is None:
                ui.label("It was given by its address, so it cannot be stopped from here.").classes(
                    "tally-quiet"
                )
                return

            def turn(event: Any) -> None:
                if event.value:
                    valkey.supervisor.resume()
                else:
                    valkey.supervisor.pause()

            is_on = not valkey.supervisor.is_paused
            ui.switch("Redis runs", value=is_on, on_change=turn).props("aria-label='Redis runs'")

    def put_history(self) -> None:
        with card("History of a player"):
            self.history = ui.column().classes("gap-1")
            with self.history:
                empty_state("Choose a row of the board.")

    async def refresh(self) -> None:
        try:
            found = await self.scoreboard.handlers.leaderboard.top(SHOWN)
        except TallyError as error:
            self.total.set_text(error.message)
            return
        self.total.set_text(f"{found.total_players:,} players")
        self._move(list(found.standings))
        await self._tell_redis()

    def _move(self, standings: list[Standing]) -> None:
        """Rows keep their place on the page and slide to where they belong."""
        shown = {standing.user_id for standing in standings}
        for user_id in [user_id for user_id in self.rows if user_id not in shown]:
            self.rows.pop(user_id).element.delete()
        for position, standing in enumerate(standings):
            row = self.rows.get(standing.user_id) or self._new_row(standing.user_id)
            row.element.style(f"transform: translateY({position * ROW_PIXELS}px)")
            name = (
                f"{standing.username} (you)"
                if standing.user_id == self.guest_id
                else standing.username
            )
            row.show((standing, name), partial(_standing, standing, name))

    def _new_row(self, user_id: str) -> Region:
        with self.place:
            row = ui.row().classes(
                "tally-row-move absolute w-full items-center q-px-sm cursor-pointer no-wrap"
            )
        row.style(f"height: {ROW_PIXELS}px").props("role=listitem tabindex=0")
        row.on("click", lambda: self.look_at(user_id))
        row.on("keydown.enter", lambda: self.look_at(user_id))
        self.rows[user_id] = Region(row)
        return self.rows[user_id]

    async def _tell_redis(self) -> None:
        try:
            await self.scoreboard.redis.ping()
        except TallyError:
            self.redis.set_text("Redis is away: the board comes from PostgreSQL")
        else:
            self.redis.set_text("Redis answers: the board comes from there")

    async def look_at(self, user_id: str) -> None:
        page = await self.scoreboard.handlers.accounts.events.of_user(user_id, HISTORY, None)
        self.history.clear()
        with self.history:
            if not page.events:
                empty_state("No game yet.")
            for event in page.events:
                with ui.row().classes("gap-3 tally-numbers"):
                    ui.label(f"{event.created_at:%H:%M:%S} UTC").classes("tally-quiet")
                    ui.label(f"+{event.score_delta}").classes("text-positive text-weight-medium")
                    ui.label(f"to {event.score_after:,}, {event.action_id.split('-')[0]}")

    async def play(self) -> None:
        handlers = self.scoreboard.handlers
        if self.guest_id is None:
            name = f"guest_{new_uuid()[:8]}"
            asked = AccountRegistration(name, f"{name}@example.org", new_uuid())
            user, _ = await handlers.accounts.register(asked, Client(None, "the console"))
            self.guest_id = user.user_id
        token, _ = await handlers.actions.complete(
            f"console-{new_uuid()}", self.guest_id, WORTH, {"game": "console"}
        )
        answer = msgspec.json.decode(
            await handlers.scores.update(self.guest_id, token, WORTH, {"device_type": "console"})
        )
        self.played.set_text(
            f"{answer['score_added']} points: {answer['new_score']:,} in all, rank {answer['rank']}"
        )
        await self.refresh()
        await self.look_at(self.guest_id)


def _standing(standing: Standing, name: str) -> None:
    ui.label(str(standing.rank)).classes("text-weight-bold tally-numbers").style("width: 2rem")
    ui.label(name).classes("col ellipsis")
    ui.label(f"{standing.score:,}").classes("text-weight-medium tally-numbers")
