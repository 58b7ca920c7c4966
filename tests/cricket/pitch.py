"""Instances of the live pipeline on one store, with a score service and phones that a test holds in its hand."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import LivePoll, MatchFeed
from tally.cricket.model.pipeline import PipelineState, pipeline_state
from tally.cricket.model.push import BroadcastChannel, Priority, Push, PushOutcome, PushResult
from tally.cricket.model.records import ActiveMatch, ActivityStatus
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.locks import LockRepository, StoreLocks
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.service.live.pipeline import Pipeline
from tally.cricket.service.live.poller import LiveScore
from tally.cricket.service.live.processing import MatchProcessing
from tally.cricket.service.live.reconciliation import Reconciliation
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.queries.feeds import FeedCache
from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.ids import SortableIds
from tally.kit.ttl_cache import TTLCache
from tally.store.api import Engine
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.cricket import made_up
from tests.cricket.conftest import TABLES

DELIVERED = PushResult(PushOutcome.DELIVERED, 200)


@asynccontextmanager
async def pitch_engine(directory: Path) -> AsyncIterator[Engine]:
    """SQLite with the tables of cricket."""
    async with open_sqlite(directory) as engine:
        for table in TABLES:
            await engine.create_table(table)
        yield engine


@dataclass
class Received:
    """A push as its device reads it."""

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
class Phones:
    """A push service in a few lines: every push is answered by `verdict`, and written down if it is taken."""

    verdict: Callable[[Push], PushResult] = lambda _: DELIVERED
    pushed: list[Received] = field(default_factory=list)
    broadcasts: list[Received] = field(default_factory=list)
    before: Callable[[Push], object] = lambda _: None
    is_configured: bool = True

    async def send(self, push: Push) -> PushResult:
        self.before(push)
        verdict = self.verdict(push)
        if verdict.is_delivered:
            self.pushed.append(_read(push.token, push.payload, push.priority))
        return verdict

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
        verdict = self.verdict(Push(token=channel_id, payload=payload))
        if verdict.is_delivered:
            self.broadcasts.append(_read(channel_id, payload, priority))
        return verdict

    async def create_channel(self, *, stores_latest: bool = True) -> str:
        return f"channel {stores_latest}"

    async def delete_channel(self, channel_id: str) -> bool:
        return bool(channel_id)

    async def read_channel(self, channel_id: str) -> BroadcastChannel | None:
        return BroadcastChannel(channel_id, stores_latest=True)

    async def list_channels(self) -> Sequence[str]:
        return []

    def of(self, token: str) -> list[Received]:
        return [each for each in self.pushed if each.token == token]

    def shown(self, token: str) -> Received:
        return max(self.of(token), key=lambda each: each.timestamp)


def _read(token: str, payload: bytes, priority: int) -> Received:
    aps = msgspec.json.decode(payload)["aps"]
    return Received(
        token, aps["timestamp"], aps["event"], aps["content-state"], aps.get("alert"), priority
    )


@dataclass
class Scores:
    """What the score service says: `now` by match; silent while `is_away`."""

    clock: Clock
    now: dict[str, MatchFeed] = field(default_factory=dict)
    last: dict[str, MatchFeed] = field(default_factory=dict)
    is_away: bool = False
    polls: int = 0

    async def live(self) -> LivePoll:
        self.polls += 1
        if self.is_away:
            raise Unavailable("SportMonks does not answer", retry_after=1)
        feeds = tuple(
            msgspec.structs.replace(feed, received_at=self.clock.milliseconds())
            for feed in self.now.values()
        )
        return LivePoll(feeds, frozenset(self.now), self.clock.milliseconds())

    async def match(self, match_id: str) -> MatchFeed | None:
        if self.is_away:
            raise Unavailable("SportMonks does not answer")
        feed = self.last.get(match_id) or self.now.get(match_id)
        return (
            None
            if feed is None
            else msgspec.structs.replace(feed, received_at=self.clock.milliseconds())
        )


@dataclass
class RecordingPublisher:
    """Records what the pipeline publishes."""

    events: list[KeyEvent] = field(default_factory=list)
    displays: list[Mapping[str, Mapping[str, Any]]] = field(default_factory=list)

    def publish(
        self, match_id: str, displays: Mapping[str, Mapping[str, Any]], events: Sequence[KeyEvent]
    ) -> None:
        assert match_id
        self.events += events
        self.displays.append(displays)


@dataclass
class Instance:
    """One process of the program, as far as live matches are concerned."""

    score: LiveScore
    pipeline: Pipeline
    workers: MatchWorkers
    published: RecordingPublisher
    active: ActiveMatchRepository
    activities: LiveActivityRepository
    subscriptions: ActivitySubscriptionRepository
    fixtures: FixtureRepository
    clock: Clock

    async def poll(self) -> float:
        """A poll, and everybody told."""
        wait = await self.score.run()
        await self.workers.idle()
        return wait

    async def record(self, match_id: str) -> ActiveMatch:
        record = await self.active.get(match_id)
        assert record is not None
        return record

    async def memory(self, match_id: str) -> PipelineState:
        return pipeline_state(await self.record(match_id))

    async def follow(self, match_id: str, token: str, **changes: Any) -> str:
        """A device that shows the match; its token."""
        wanted: dict[str, Any] = {"status": ActivityStatus.ACTIVE, "update_token": token} | changes
        activity = made_up.activity(match_id, user_id=f"user-{token}", **wanted)
        assert await self.activities.create(activity)
        return token


@asynccontextmanager
async def instance(
    engine: Engine,
    clock: Clock,
    scores: Any,
    apns: Any,
    *,
    name: str = "one",
    lock_seconds: float = 10,
) -> AsyncIterator[Instance]:
    store = Store(engine, clock)
    active, fixtures, processing = (
        ActiveMatchRepository(store),
        FixtureRepository(store),
        ProcessingRepository(store),
    )
    activities, subscriptions, published = (
        LiveActivityRepository(store),
        ActivitySubscriptionRepository(store),
        RecordingPublisher(),
    )
    feeds = FeedCache(FixtureCacheRepository(store), clock, TTLCache(clock, 1, 100))
    pipeline = Pipeline(
        active=active,
        processing=MatchProcessing(processing, clock),
        hashes=StateHashRepository(store),
        displays=DisplayCacheRepository(store),
        activities=activities,
        subscriptions=subscriptions,
        feeds=feeds,
        apns=apns,
        publisher=published,
        clock=clock,
        owner=name,
    )
    async with MatchWorkers(
        pipeline, StoreLocks(LockRepository(store), clock, name), clock, lock_seconds
    ) as workers:
        score = LiveScore(
            scores=scores,
            workers=workers,
            reconciliation=Reconciliation(scores, workers, fixtures, active, clock),
            fixtures=fixtures,
            feeds=feeds,
            replays=ReplayService(
                fixtures, processing, feeds, clock, SortableIds(clock), TTLCache(clock, 60, 10)
            ),
            clock=clock,
        )
        yield Instance(
            score, pipeline, workers, published, active, activities, subscriptions, fixtures, clock
        )
