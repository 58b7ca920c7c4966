"""The SSE stream of the leaderboard: the `Publisher` on the hub, and the route's handler."""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tally.kit.event_stream import EventStream
from tally.kit.hub import Hub
from tally.scoreboard.api.auth import ScoreboardAuth, client_address
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.ports import LeaderboardUpdate
from tally.scoreboard.service.stream_slots import StreamSlots

TOPIC: Final = "scoreboard:leaderboard"
EVENT: Final = "leaderboard"


@dataclass(frozen=True, slots=True)
class LeaderboardPublisher:
    """Publishes leaderboard updates to the hub's SSE subscribers; implements `Publisher`."""

    hub: Hub

    def has_subscribers(self) -> bool:
        return self.hub.is_active(TOPIC)

    def publish(self, update: LeaderboardUpdate) -> None:
        self.hub.publish(TOPIC, EVENT, update)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardStream:
    """Serves the stream within the limits per player and per address."""

    hub: Hub
    broadcaster: LeaderboardBroadcaster
    slots: StreamSlots
    auth: ScoreboardAuth

    async def stream(self, request: Request) -> ASGIApp:
        player = await self.auth.optional_player(request)
        events = EventStream(self.hub, TOPIC, request, self._snapshot)
        return _LimitedStream(
            events, self.slots, player.user_id if player else None, client_address(request)
        )

    async def _snapshot(self) -> tuple[str, LeaderboardUpdate]:
        return EVENT, await self.broadcaster.snapshot()


class _LimitedStream:
    """A response that occupies stream slots while it is being sent."""

    def __init__(
        self, events: ASGIApp, slots: StreamSlots, user_id: str | None, address: str
    ) -> None:
        self._events = events
        self._slots = slots
        self._user_id = user_id
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._slots.reserve(self._user_id, self._address):
            await self._events(scope, receive, send)
