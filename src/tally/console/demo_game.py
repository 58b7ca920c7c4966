"""Controls of the scoreboard page that only the demo has: a game to play and a switch for Redis.

In production they would let every operator add points and stop Redis.
"""

from typing import Any, Final

import msgspec
from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.leaderboard import LeaderboardView
from tally.console.shell import card
from tally.kit.ids import new_uuid
from tally.scoreboard.model.accounts import ClientInfo
from tally.scoreboard.service.accounts import AccountRegistration
from tally.scoreboard.wiring import Scoreboard

GAME_POINTS: Final = 500
ABOUT_PLAYING: Final = (
    "You play as a guest. The game server issues a signed token, which you exchange once."
)


class DemoGame:
    """A game that one visitor plays as a guest, created on the first click."""

    def __init__(
        self, context: ConsoleContext, scoreboard: Scoreboard, view: LeaderboardView
    ) -> None:
        self._changes = context.changes
        self._services = scoreboard.services
        self._view = view

    def show(self) -> None:
        with card("Play", about=ABOUT_PLAYING), ui.row().classes("items-center gap-3"):
            button = ui.button("Play a game", icon="sports_esports").props("data-play=1")
            self._played = ui.label()
        self._changes.control(button, self.play)

    async def play(self) -> None:
        async with self._changes.audited("demo_game_play", "scoreboard"):
            guest_id = self._view.guest_id or await self._register()
            result = await self._score(guest_id)
        self._view.guest_id = guest_id
        self._played.set_text(
            f"{result['score_added']} points: {result['new_score']:,} in total, "
            f"rank {result['rank']}"
        )
        await self._view.refresh()
        await self._view.select_player(guest_id)

    async def _register(self) -> str:
        name = f"guest_{new_uuid()[:8]}"
        registration = AccountRegistration(name, f"{name}@example.org", new_uuid())
        client = ClientInfo(None, "the console")
        user, _ = await self._services.accounts.register(registration, client)
        return user.user_id

    async def _score(self, guest_id: str) -> dict[str, Any]:
        token, _, _ = await self._services.actions.complete(
            f"console-{new_uuid()}", guest_id, GAME_POINTS, {"game": "console"}
        )
        scores = self._services.scores
        body, _ = await scores.update(
            scores.verify(token, guest_id), GAME_POINTS, {"device_type": "console"}
        )
        return msgspec.json.decode(body, type=dict[str, Any])


def show_redis_switch(context: ConsoleContext, scoreboard: Scoreboard) -> None:
    """Show a switch that stops the embedded Redis, to see the leaderboard work without it."""
    if scoreboard.valkey is None:
        return
    supervisor = scoreboard.valkey.supervisor

    async def toggle() -> None:
        is_on = bool(switch.value)
        try:
            async with context.changes.audited("demo_redis_switch", "redis", is_on=is_on):
                (supervisor.resume if is_on else supervisor.pause)()
        finally:
            switch.value = not supervisor.is_paused

    switch = ui.switch("Redis running", value=not supervisor.is_paused)
    switch.props("aria-label='Redis running'")
    context.changes.control(switch, toggle, "update:model-value")
