"""Starts instances of the live pipeline on one store, with any score service and push gateway."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry

from tally.cricket.model.pipeline import PipelineState, pipeline_state
from tally.cricket.model.records import ActiveMatch, ActivityStatus
from tally.cricket.repository.locks import StoreLocks
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.live.ball_log_cache import BallLogCache
from tally.cricket.service.live.metrics import FeedMetrics
from tally.cricket.service.live.pipeline import Pipeline
from tally.cricket.service.live.poller import ScorePoller
from tally.cricket.service.live.reconciliation import Reconciliation
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.queries.feeds import FeedCache
from tally.cricket.wiring.queries import build_replays
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.locks import Lease
from tally.kit.ttl_cache import TTLCache
from tally.store.api import Engine
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.tables import TABLES
from tests.store.emulators import open_engine

_LEASE_NAMES: WeakKeyDictionary[Clock, str] = WeakKeyDictionary()


def open_cricket_engine(directory: Path) -> AbstractAsyncContextManager[Engine]:
    """Open a SQLite engine with the tables of cricket."""
    return open_engine("sqlite", directory, TABLES)


@dataclass
class PipelineInstance:
    """The live pipeline of one instance, and its repositories."""

    poller: ScorePoller
    pipeline: Pipeline
    workers: MatchWorkers
    repositories: Repositories
    clock: Clock
    registry: CollectorRegistry

    async def poll(self) -> float:
        """Poll once and wait for all fan-outs; return the seconds until the next poll."""
        wait = await self.poller.run()
        await self.workers.wait_idle()
        return wait

    async def record(self, match_id: str) -> ActiveMatch:
        record = await self.repositories.matches.get(match_id)
        assert record is not None
        return record

    async def state(self, match_id: str) -> PipelineState:
        return pipeline_state(await self.record(match_id))

    async def follow(self, match_id: str, token: str, **changes: Any) -> str:
        """Add a device that displays the match; return its token."""
        values: dict[str, Any] = {"status": ActivityStatus.ACTIVE, "update_token": token} | changes
        activity = factories.activity(match_id, user_id=f"user-{token}", **values)
        assert await self.repositories.activities.create(activity)
        return token


@asynccontextmanager
async def open_instance(
    engine: Engine,
    clock: Clock,
    scores: Any,
    apns: Any,
    *,
    name: str = "one",
    lock_seconds: float = 10,
) -> AsyncIterator[PipelineInstance]:
    repositories = Repositories.create(Store(engine, clock))
    feeds = FeedCache(repositories.cache, clock, TTLCache(clock, 1, 100))
    registry = CollectorRegistry()
    metrics = FeedMetrics(clock, registry)
    pipeline = Pipeline(
        repositories=repositories,
        ball_logs=BallLogCache(repositories.processing, clock),
        feeds=feeds,
        apns=apns,
        clock=clock,
        owner=name,
        metrics=metrics,
    )
    locks = StoreLocks(repositories.locks, clock, name)
    # Tests share tables: the instances of one test share a clock and this lease.
    lease = Lease(locks, clock, _LEASE_NAMES.setdefault(clock, new_uuid()), lock_seconds)
    async with MatchWorkers(pipeline, locks, clock, lock_seconds) as workers:
        poller = ScorePoller(
            scores=scores,
            workers=workers,
            reconciliation=Reconciliation(
                scores, workers, repositories.fixtures, repositories.matches, clock
            ),
            fixtures=repositories.fixtures,
            feeds=feeds,
            replays=build_replays(repositories, feeds, clock),
            lease=lease,
            metrics=metrics,
            clock=clock,
        )
        yield PipelineInstance(poller, pipeline, workers, repositories, clock, registry)
