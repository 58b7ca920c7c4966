"""The scoreboard page: live leaderboard, player history, a demo game and a Redis switch."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.shell import Region, Shell, card, empty_state, not_started
from tally.errors import TallyError
from tally.kit.ids import new_uuid
from tally.scoreboard.model import ClientInfo, Standing
from tally.scoreboard.service.accounts import AccountRegistration
from tally.scoreboard.wiring import Scoreboard

ABOUT: Final = (
    "Scores are verified by the game server and counted once. "
    "PostgreSQL is the source of truth; Redis serves reads."
)
ROWS: Final = 10
GAME_POINTS: Final = 500
ROW_PIXELS: Final = 44
MAX_EVENTS: Final = 15


def add_scoreboard_pages(shell: Shell, context: ConsoleContext) -> None:
    scoreboard = context.backend("scoreboard", Scoreboard)

    @shell.page("/scoreboard", "Scoreboard", ABOUT)
    async def board() -> None:
        if scoreboard is None:
            not_started("scoreboard")
            return
        view = LeaderboardView(scoreboard)
        with ui.element("div").classes("tally-main-side"):
            view.show_board()
            with ui.column().classes("gap-4 w-full"):
                view.show_play()
                view.show_redis()
                view.show_history()
        await view.refresh()
        ui.timer(1.0, view.refresh, immediate=False)


@dataclass
class LeaderboardView:
    """The page of one visitor, who plays as a guest created on the first click."""

    scoreboard: Scoreboard
    rows: dict[str, Region] = field(default_factory=dict)
    guest_id: str | None = None

    def show_board(self) -> None:
        with card(
            "Leaderboard",
            about="Live ranking. Select a player to see their history.",
        ):
            self.total = ui.label().classes("tally-quiet tally-small")
            self.board = (
                ui.element("div")
                .classes("relative-position w-full")
                .style(f"height: {ROWS * ROW_PIXELS}px")
            )
            self.board.props("role=list aria-label='Leaderboard'")

    def show_play(self) -> None:
        about = (
            "You play as a guest. The game server issues a signed token, which you exchange once."
        )
        with card("Play", about=about), ui.row().classes("items-center gap-3"):
            ui.button("Play a game", icon="sports_esports", on_click=self.play).props("data-play=1")
            self.played = ui.label()

    def show_redis(self) -> None:
        with card(
            "Redis",
            about="Without Redis, the leaderboard is read from PostgreSQL. No score is lost.",
        ):
            valkey = self.scoreboard.valkey
            self.redis = ui.label()
            if valkey is None:
                ui.label("An external Redis cannot be stopped from the console.").classes(
                    "tally-quiet"
                )
                return

            def toggle(event: Any) -> None:
                if event.value:
                    valkey.supervisor.resume()
                else:
                    valkey.supervisor.pause()

            is_on = not valkey.supervisor.is_paused
            ui.switch("Redis running", value=is_on, on_change=toggle).props(
                "aria-label='Redis running'"
            )

    def show_history(self) -> None:
        with card("Player history"):
            self.history = ui.column().classes("gap-1")
            with self.history:
                empty_state("Select a player.")

    async def refresh(self) -> None:
        try:
            page = await self.scoreboard.services.leaderboard.top(ROWS)
        except TallyError as error:
            self.total.set_text(error.message)
            return
        self.total.set_text(f"{page.total_players:,} players")
        self._arrange_rows(list(page.standings))
        await self._show_redis_state()

    def _arrange_rows(self, standings: list[Standing]) -> None:
        """Animate rows to their new positions."""
        ranked = {standing.user_id for standing in standings}
        for user_id in [user_id for user_id in self.rows if user_id not in ranked]:
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
        with self.board:
            row = ui.row().classes(
                "tally-row-move absolute w-full items-center q-px-sm cursor-pointer no-wrap"
            )
        row.style(f"height: {ROW_PIXELS}px").props("role=listitem tabindex=0")
        row.on("click", lambda: self.select_player(user_id))
        row.on("keydown.enter", lambda: self.select_player(user_id))
        self.rows[user_id] = Region(row)
        return self.rows[user_id]

    async def _show_redis_state(self) -> None:
        try:
            await self.scoreboard.services.server_stats.ping_cache()
        except TallyError:
            self.redis.set_text("Redis unavailable. The leaderboard is read from PostgreSQL.")
        else:
            self.redis.set_text("Redis available. The leaderboard is read from Redis.")

    async def select_player(self, user_id: str) -> None:
        page = await self.scoreboard.services.accounts.history(user_id, MAX_EVENTS)
        self.history.clear()
        with self.history:
            if not page.events:
                empty_state("No games yet.")
            for event in page.events:
                with ui.row().classes("gap-3 tally-numbers"):
                    ui.label(f"{event.created_at:%H:%M:%S} UTC").classes("tally-quiet")
                    ui.label(f"+{event.score_delta}").classes("text-positive text-weight-medium")
                    ui.label(f"to {event.score_after:,}, {event.action_id.split('-')[0]}")

    async def play(self) -> None:
        services = self.scoreboard.services
        if self.guest_id is None:
            name = f"guest_{new_uuid()[:8]}"
            registration = AccountRegistration(name, f"{name}@example.org", new_uuid())
            user, _ = await services.accounts.register(
                registration, ClientInfo(None, "the console")
            )
            self.guest_id = user.user_id
        token, _ = await services.actions.complete(
            f"console-{new_uuid()}", self.guest_id, GAME_POINTS, {"game": "console"}
        )
        response = msgspec.json.decode(
            await services.scores.update(
                self.guest_id, token, GAME_POINTS, {"device_type": "console"}
            )
        )
        self.played.set_text(
            f"{response['score_added']} points: {response['new_score']:,} in total, "
            f"rank {response['rank']}"
        )
        await self.refresh()
        await self.select_player(self.guest_id)


def _standing(standing: Standing, name: str) -> None:
    ui.label(str(standing.rank)).classes("text-weight-bold tally-numbers").style("width: 2rem")
    ui.label(name).classes("col ellipsis")
    ui.label(f"{standing.score:,}").classes("text-weight-medium tally-numbers")
