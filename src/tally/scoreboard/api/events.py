"""The SSE stream of the leaderboard: the `Publisher` on the hub, and the route's handler."""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from tally.instance.streams import OpenStreams, StreamSession
from tally.kit.event_stream import EventStream, StateSource
from tally.kit.hub import Hub
from tally.scoreboard.api.auth import ScoreboardAuth
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.ports import LeaderboardUpdate

TOPIC: Final = "scoreboard:leaderboard"
EVENT: Final = "leaderboard"


@dataclass(frozen=True, slots=True)
class LeaderboardPublisher:
    """Publishes leaderboard updates to the hub's SSE subscribers; implements `Publisher`."""

    hub: Hub

    def has_subscribers(self) -> bool:
        return self.hub.is_active(TOPIC)

    def subscriber_count(self) -> int:
        return self.hub.subscriber_count(TOPIC)

    def publish(self, update: LeaderboardUpdate) -> None:
        self.hub.publish_state(TOPIC, EVENT, update)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardStream:
    """Serves the stream; that of a player ends with the player's session."""

    hub: Hub
    broadcaster: LeaderboardBroadcaster
    streams: OpenStreams
    auth: ScoreboardAuth

    async def stream_leaderboard(self, request: Request) -> ASGIApp:
        player = await self.auth.optional_player(request)
        if player is None:
            owner = self.streams.admit(request)
        else:
            owner = self.streams.admit(
                request,
                person=f"scoreboard:{player.user_id}",
                session=StreamSession(player.session_id, self.auth.sessions.find_active_ids),
            )
        events = EventStream(self.hub, StateSource(TOPIC, self._snapshot), request)
        return self.streams.response(owner, events)

    async def _snapshot(self) -> tuple[str, LeaderboardUpdate]:
        return EVENT, await self.broadcaster.snapshot()
