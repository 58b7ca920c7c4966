"""The page of a player: scores, history, sessions and moderation."""

from functools import partial
from typing import Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.links import player_path
from tally.console.local_time import local_time
from tally.console.search import MAX_RESULTS, SearchResult
from tally.console.shell import (
    Region,
    Shell,
    card,
    empty_state,
    heading,
    not_started,
    show_not_found,
)
from tally.errors import TallyError
from tally.kit.ids import new_uuid
from tally.scoreboard.model.accounts import PlayerSession, parse_user_id
from tally.scoreboard.model.boards import GLOBAL_BOARD
from tally.scoreboard.model.scores import Adjustment, ScoreEvent
from tally.scoreboard.service.services import ScoreboardServices
from tally.scoreboard.wiring import Scoreboard

MAX_EVENTS: Final = 50


def add_player_pages(shell: Shell, context: ConsoleContext) -> None:
    scoreboard = context.backend("scoreboard", Scoreboard)
    if scoreboard is not None:
        shell.search.add("Players", partial(_find, scoreboard.services))

    @shell.page("/scoreboard/players/{user_id}", "Player", is_headed=False)
    async def player(user_id: str) -> None:
        if scoreboard is None:
            not_started("scoreboard")
            return
        try:
            user = await scoreboard.services.accounts.find(parse_user_id(user_id))
        except TallyError as error:
            show_not_found("Player", error.message, "/scoreboard", "Leaderboard")
            return
        heading(user.username)
        with ui.row().classes("gap-1 tally-quiet"):
            ui.label("Registered on")
            local_time(user.created_at, "day")
        view = PlayerView(context, scoreboard.services, user.user_id)
        view.show()
        await view.refresh()
        ui.timer(2.0, view.refresh, immediate=False)


async def _find(services: ScoreboardServices, text: str) -> list[SearchResult]:
    return [
        SearchResult(user.username, player_path(user.user_id), f"User ID {user.user_id}")
        for user in await services.accounts.search(text, MAX_RESULTS)
    ]


class PlayerView:
    """The page of one visitor."""

    def __init__(self, context: ConsoleContext, services: ScoreboardServices, user_id: str) -> None:
        self._context = context
        self._services = services
        self._user_id = user_id
        # Repeating an adjustment after an error does not apply it twice.
        self._adjustment_id = new_uuid()

    def show(self) -> None:
        with ui.element("div").classes("tally-main-side"):
            with ui.column().classes("gap-4 w-full"):
                with card("Scores"):
                    self._scores = Region(ui.column().classes("gap-1"))
                with card("History", about="The latest changes, newest first."):
                    self._history = Region(ui.column().classes("gap-1"))
            with ui.column().classes("gap-4 w-full"):
                self._show_moderation()
                with card("Sessions", about="Active sign-ins, newest first."):
                    self._sessions = Region(ui.column().classes("gap-1"))

    def _show_moderation(self) -> None:
        with card("Moderation", about="Leaderboards, Redis and streams follow at once."):
            self._delta = ui.number("Points to add", value=0, format="%d").props("step=1")
            self._board = ui.input("Board", value=GLOBAL_BOARD)
            self._reason = ui.input("Reason").props("hint='Part of the history of the player'")
            with ui.row().classes("gap-2"):
                adjust = ui.button("Adjust").props("data-adjust=1")
                ban = ui.button("Ban").props("color=negative data-ban=1")
                unban = ui.button("Unban").props("outline data-unban=1")
            self._outcome = ui.label().props("role=status")
        self._context.changes.control(adjust, self._adjust)
        self._context.changes.control(ban, self._ban)
        self._context.changes.control(unban, self._unban)

    async def _adjust(self) -> None:
        delta, reason = int(self._delta.value or 0), str(self._reason.value or "").strip()
        if delta == 0 or not reason:
            self._outcome.set_text("An adjustment needs points and a reason.")
            return
        board = None if self._board.value in {"", GLOBAL_BOARD} else str(self._board.value)
        adjustment = Adjustment(self._adjustment_id, self._user_id, delta, reason[:500], board)
        try:
            async with self._context.changes.audited("player_adjust", self._user_id, points=delta):
                applied, rank = await self._services.moderation.adjust(adjustment)
        except TallyError as error:
            self._outcome.set_text(error.message)
            return
        self._adjustment_id = new_uuid()
        place = "" if rank is None else f", rank {rank}"
        self._outcome.set_text(f"The score is {applied.score_after:,}{place}.")
        await self.refresh()

    async def _ban(self) -> None:
        async with self._context.changes.audited("player_ban", self._user_id):
            await self._services.moderation.ban(self._user_id)
        self._outcome.set_text("The player is banned.")
        await self.refresh()

    async def _unban(self) -> None:
        async with self._context.changes.audited("player_unban", self._user_id):
            await self._services.moderation.unban(self._user_id)
        self._outcome.set_text("The player is not banned.")
        await self.refresh()

    async def refresh(self) -> None:
        scores = await self._read_scores()
        self._scores.show(scores, partial(_draw_lines, scores))
        try:
            page = await self._services.accounts.history(self._user_id, MAX_EVENTS)
            now = self._context.clock.now()
            sessions = await self._services.sessions.sessions.find_active(self._user_id, now)
        except TallyError as error:
            self._outcome.set_text(error.message)
            return
        self._history.show(page.events, partial(_draw_history, page.events))
        self._sessions.show(sessions, partial(_draw_sessions, sessions))

    async def _read_scores(self) -> list[str]:
        """Return a line for the global leaderboard, and one for each board with a score."""
        services = self._services
        try:
            standing, players = await services.leaderboard.standing(self._user_id)
            lines = [f"Global: {standing.score:,}, rank {standing.rank:,} of {players:,}"]
            for place in await services.boards.repository.find_places(self._user_id):
                board, standing, players = await services.boards.standing(
                    place.board_id, self._user_id
                )
                lines.append(
                    f"{board.rules.name}, season {board.season}: {standing.score:,},"
                    f" rank {standing.rank:,} of {players:,}"
                )
        except TallyError as error:
            return [error.message]
        return lines


def _draw_lines(lines: list[str]) -> None:
    for line in lines:
        ui.label(line).classes("tally-numbers")


def _draw_history(events: tuple[ScoreEvent, ...]) -> None:
    if not events:
        empty_state("No games yet. Points appear here when the player scores.")
    for event in events:
        with ui.row().classes("gap-3 tally-numbers"):
            local_time(event.created_at, "second").classes("tally-quiet")
            ui.label(f"{event.score_delta:+}").classes("text-weight-medium")
            for text in changed_scores(event):
                ui.label(text)
            ui.label(str(event.metadata.get("reason", ""))).classes("tally-quiet")


def changed_scores(event: ScoreEvent) -> list[str]:
    """Return the scores that an event changed: the global one, unless it counted on boards only."""
    boards = [f"{change.board_id}: {change.after:,}" for change in event.boards]
    if boards and event.score_after == event.score_before:
        return boards
    return [f"to {event.score_after:,}", *boards]


def _draw_sessions(sessions: list[PlayerSession]) -> None:
    if not sessions:
        empty_state("No active session. The player has to sign in.")
    for session in sessions:
        with ui.column().classes("gap-0"):
            with ui.row().classes("gap-1 tally-numbers"):
                ui.label("Since")
                local_time(session.created_at)
            client = session.client
            ui.label(
                f"{client.ip_address or 'no address'}, {client.user_agent or 'no agent'}"
            ).classes("tally-quiet tally-small ellipsis")
