"""Fakes of the pipeline's ports: a push gateway and a score service."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tally.cricket.model.feed import LivePoll, MatchFeed
from tally.cricket.model.push import Priority, Push, PushOutcome, PushResult
from tally.errors import Unavailable
from tally.kit.clock import Clock

DELIVERED = PushResult(PushOutcome.DELIVERED, 200)


@dataclass
class ReceivedPush:
    """A push as its device decodes it."""

    token: str
    timestamp: int
    event: str
    content: dict[str, Any]
    alert: dict[str, str] | None
    priority: int

    @property
    def score(self) -> str:
        return " ".join(team.get("score", "-") for team in self.content["teams"])


@dataclass
class FakePushGateway:
    """Responds to every push with `respond` and records the delivered ones."""

    respond: Callable[[Push], PushResult] = lambda _: DELIVERED
    pushes: list[ReceivedPush] = field(default_factory=list)
    broadcasts: list[ReceivedPush] = field(default_factory=list)
    on_send: Callable[[Push], object] = lambda _: None
    is_configured: bool = True

    async def send(self, push: Push) -> PushResult:
        self.on_send(push)
        result = self.respond(push)
        if result.is_delivered:
            self.pushes.append(_decode(push.token, push.payload, push.priority))
        return result

    async def send_all(
        self, pushes: AsyncIterable[Push], concurrency: int | None = None
    ) -> AsyncGenerator[tuple[Push, PushResult], None]:
        assert concurrency is None
        async for push in pushes:
            yield push, await self.send(push)

    async def broadcast(
        self, channel_id: str, payload: bytes, *, priority: Priority, expiration: int = 0
    ) -> PushResult:
        assert expiration
        result = self.respond(Push(token=channel_id, payload=payload))
        if result.is_delivered:
            self.broadcasts.append(_decode(channel_id, payload, priority))
        return result

    async def create_channel(self, *, stores_latest: bool = True) -> str:
        return f"channel {stores_latest}"

    async def delete_channel(self, channel_id: str) -> bool:
        return bool(channel_id)

    async def list_channels(self) -> Sequence[str]:
        return []

    def pushes_to(self, token: str) -> list[ReceivedPush]:
        return [push for push in self.pushes if push.token == token]

    def latest_push_to(self, token: str) -> ReceivedPush:
        return max(self.pushes_to(token), key=lambda push: push.timestamp)


def _decode(token: str, payload: bytes, priority: int) -> ReceivedPush:
    aps = msgspec.json.decode(payload)["aps"]
    return ReceivedPush(
        token, aps["timestamp"], aps["event"], aps["content-state"], aps.get("alert"), priority
    )


@dataclass
class FakeScores:
    """A score service: `live_feeds` and, after a match, `final_feeds` by match id."""

    clock: Clock
    live_feeds: dict[str, MatchFeed] = field(default_factory=dict)
    final_feeds: dict[str, MatchFeed] = field(default_factory=dict)
    is_unavailable: bool = False
    paced_interval: float = 0.0
    requests: int = 0

    async def live(self) -> LivePoll:
        self.requests += 1
        if self.is_unavailable:
            raise Unavailable("SportMonks does not respond", retry_after=1)
        feeds = tuple(
            msgspec.structs.replace(feed, received_at=self.clock.milliseconds())
            for feed in self.live_feeds.values()
        )
        return LivePoll(feeds, frozenset(self.live_feeds), self.clock.milliseconds())

    def live_interval(self) -> float:
        return self.paced_interval

    async def match(self, match_id: str) -> MatchFeed | None:
        if self.is_unavailable:
            raise Unavailable("SportMonks does not respond")
        feed = self.final_feeds.get(match_id) or self.live_feeds.get(match_id)
        return (
            None
            if feed is None
            else msgspec.structs.replace(feed, received_at=self.clock.milliseconds())
        )
