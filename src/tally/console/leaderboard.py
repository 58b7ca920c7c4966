"""The leaderboard of the scoreboard page, with the history of a player and the state of Redis."""

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from nicegui import ui

from tally.console.formatting import pluralize
from tally.console.links import link, player_path
from tally.console.local_time import local_time
from tally.console.players import changed_scores
from tally.console.shell import Region, card, empty_state
from tally.errors import TallyError
from tally.scoreboard.model.scores import Standing
from tally.scoreboard.wiring import Scoreboard

ROWS: Final = 10
ROW_PIXELS: Final = 44
MAX_EVENTS: Final = 15


@dataclass
class LeaderboardView:
    """The page of one visitor; `guest_id` is the player who the visitor is in the demo."""

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

    def show_redis(self) -> ui.card:
        about = "Without Redis, the leaderboard is read from PostgreSQL. No score is lost."
        with card("Redis", about=about) as element:
            self.redis = ui.label()
        return element

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
        players = pluralize(page.total_players, "player", "players")
        self.total.set_text(
            f"{page.total_players:,} {players}"
            if page.standings
            else "No players yet. They appear when they score for the first time."
        )
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
            link("Open the player's page", player_path(user_id))
            if not page.events:
                empty_state("No games yet. Points appear here when the player scores.")
            for event in page.events:
                with ui.row().classes("gap-3 tally-numbers"):
                    local_time(event.created_at, "clock").classes("tally-quiet")
                    ui.label(f"{event.score_delta:+}").classes("text-positive text-weight-medium")
                    action = event.action_id.partition("-")[0]
                    ui.label(", ".join([*changed_scores(event), action]))


def _standing(standing: Standing, name: str) -> None:
    ui.label(str(standing.rank)).classes("text-weight-bold tally-numbers").style("width: 2rem")
    with ui.element("div").classes("col ellipsis"):
        link(name, player_path(standing.user_id))
    ui.label(f"{standing.score:,}").classes("text-weight-medium tally-numbers")
