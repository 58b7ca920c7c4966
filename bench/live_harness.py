"""Opens one instance of the live services on a store with any number of Live Activities."""

import asyncio
import gc
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tally.cricket.model.feed import LivePoll, MatchFeed
from tally.cricket.model.records import NEUTRAL, ActivityStatus, LiveActivity
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.repositories import REPOSITORIES, Repositories
from tally.cricket.service.live.poller import ScorePoller
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import PushGateway
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.translation import translate_match
from tally.cricket.wiring.live import open_live
from tally.cricket.wiring.queries import build_queries
from tally.dependencies import Dependencies
from tally.instance.operators import open_operators
from tally.instance.streams import open_streams
from tally.kit.clock import SystemClock
from tally.kit.cursors import Cursors
from tally.kit.hub import Hub
from tally.kit.metrics import Metrics
from tally.kit.readiness import ReadinessMonitor
from tally.kit.server import tune_interpreter
from tally.settings import Secret, Settings
from tally.sim.sportmonks.cricsheet import bundled_match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.store.catalogue import owned_tables
from tally.store.sqlite import open_sqlite
from tally.store.store import Store

# Balls that are bowled before the benchmark.
INITIAL_BALLS: Final = 40
BATCH_SIZE: Final = 1_000
DAY_SECONDS: Final = 86_400


class LocalScores:
    """A score service in the same process, without its network."""

    def __init__(self, count: int) -> None:
        self.clock = SystemClock()
        self.playbacks = [
            MatchPlayback(bundled_match(900_000 + number), self.clock) for number in range(count)
        ]
        for playback in self.playbacks:
            playback.deliver(INITIAL_BALLS)

    @property
    def match_ids(self) -> list[str]:
        return [str(playback.match.id) for playback in self.playbacks]

    def bowl(self) -> None:
        """Bowl one more ball in every match."""
        for playback in self.playbacks:
            playback.deliver(1)

    def live_interval(self) -> float:
        return 0.0

    async def live(self) -> LivePoll:
        feeds = tuple(self._feed(playback) for playback in self.playbacks)
        return LivePoll(feeds, frozenset(feed.match_id for feed in feeds), 0)

    async def match(self, match_id: str) -> MatchFeed | None:
        return next(
            (
                self._feed(playback)
                for playback in self.playbacks
                if str(playback.match.id) == match_id
            ),
            None,
        )

    def _feed(self, playback: MatchPlayback) -> MatchFeed:
        body = msgspec.json.encode(playback.fixture())
        return translate_match(
            msgspec.json.decode(body, type=payloads.SportMonksFixture, strict=False),
            self.clock.milliseconds(),
        )


@dataclass(frozen=True, slots=True)
class LiveHarness:
    """One instance with its poller, workers and repositories."""

    scores: LocalScores
    poller: ScorePoller
    workers: MatchWorkers
    tables: Repositories

    async def deliver_ball(self) -> None:
        """Bowl a ball in every match, poll, and wait until all devices have the new state."""
        self.scores.bowl()
        await self.poller.run()
        await self.workers.wait_idle()


@contextmanager
def server_interpreter() -> Iterator[None]:
    """Collect garbage and switch threads as `tally serve` does, for both sides of a comparison."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    tune_interpreter()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


@asynccontextmanager
async def open_live_harness(
    directory: Path, apns: PushGateway, scores: LocalScores
) -> AsyncIterator[LiveHarness]:
    """Open an instance on a new store without followers."""
    clock, metrics = scores.clock, Metrics()
    async with open_sqlite(directory) as engine:
        for repository in REPOSITORIES:
            for table in owned_tables(repository):
                await engine.create_table(table)
        settings, store = Settings(), Store(engine, clock)
        dependencies = Dependencies(
            settings=settings,
            clock=clock,
            metrics=metrics,
            hub=Hub(clock, metrics),
            cursors=Cursors(Secret("a made-up secret of thirty-two characters")),
            store=store,
            operators=open_operators(settings, store, clock),
            readiness=ReadinessMonitor(clock),
            streams=open_streams(settings, store, clock, metrics),
        )
        tables = Repositories.create(dependencies.store)
        queries = build_queries(tables, clock)
        async with open_live(dependencies, tables, queries, scores, apns) as live:
            yield LiveHarness(scores, live.poller, live.workers, tables)


async def create_activities(
    activities: LiveActivityRepository,
    match_ids: Sequence[str],
    count: int,
    channel_id: str | None = None,
) -> None:
    """Create Live Activities, distributed over the matches."""
    clock = SystemClock()
    now = clock.milliseconds()

    def activity(number: int) -> LiveActivity:
        return LiveActivity(
            match_id=match_ids[number % len(match_ids)],
            user_id=f"user-{number:08d}",
            device_id="phone",
            status=ActivityStatus.ACTIVE,
            created_at=now,
            updated_at=now,
            expires_at=now // 1000 + DAY_SECONDS,
            team_id=NEUTRAL,
            update_token=secrets.token_hex(80),
            channel_id=channel_id,
        )

    for first in range(0, count, BATCH_SIZE):
        await asyncio.gather(
            *(
                activities.create(activity(number))
                for number in range(first, min(count, first + BATCH_SIZE))
            )
        )
