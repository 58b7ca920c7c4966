"""The SSE streams of leaderboards: the publishers on the hub, and the routes' handlers."""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp

from tally.instance.streams import OpenStreams, StreamSession
from tally.kit.event_stream import EventStream, StateSource
from tally.kit.hub import Hub
from tally.scoreboard.api.auth import ScoreboardAuth
from tally.scoreboard.service.board_broadcaster import BoardBroadcaster
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.ports import BoardUpdate, LeaderboardUpdate

TOPIC: Final = "scoreboard:leaderboard"
EVENT: Final = "leaderboard"
BOARD_EVENT: Final = "board"


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


@dataclass(frozen=True, slots=True)
class BoardHubPublisher:
    """Publishes updates of named boards to the hub's subscribers; implements `BoardPublisher`."""

    hub: Hub

    def has_subscribers(self, board_id: str) -> bool:
        return self.hub.is_active(board_topic(board_id))

    def publish(self, board_id: str, update: BoardUpdate) -> None:
        self.hub.publish_state(board_topic(board_id), BOARD_EVENT, update)


def board_topic(board_id: str) -> str:
    return f"scoreboard:board:{board_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardStream:
    """Serves the stream; that of a player ends with the player's session."""

    hub: Hub
    broadcaster: LeaderboardBroadcaster
    streams: OpenStreams
    auth: ScoreboardAuth

    async def stream_leaderboard(self, request: Request) -> ASGIApp:
        return await self.open(request, StateSource(TOPIC, self._snapshot))

    async def open(self, request: Request, source: StateSource) -> ASGIApp:
        """Return the stream of a source, within the limits of the client."""
        player = await self.auth.optional_player(request)
        if player is None:
            owner = self.streams.admit(request)
        else:
            owner = self.streams.admit(
                request,
                person=f"scoreboard:{player.user_id}",
                session=StreamSession(player.session_id, self.auth.sessions.find_active_ids),
            )
        return self.streams.response(owner, EventStream(self.hub, source, request))

    async def _snapshot(self) -> tuple[str, LeaderboardUpdate]:
        return EVENT, await self.broadcaster.snapshot()


@dataclass(frozen=True, slots=True)
class BoardStream:
    """Serves the streams of named boards."""

    streams: LeaderboardStream
    broadcaster: BoardBroadcaster

    async def stream_board(self, request: Request) -> ASGIApp:
        board_id = request.path_params["board_id"]
        await self.broadcaster.read_top(board_id, 1)  # an unknown board is no stream

        async def snapshot() -> tuple[str, BoardUpdate]:
            return BOARD_EVENT, await self.broadcaster.snapshot(board_id)

        return await self.streams.open(request, StateSource(board_topic(board_id), snapshot))
