"""Builds the live services: from the score service to devices and SSE subscribers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tally.cricket.repository.locks import StoreLocks
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities import notifications, sweeps, toss
from tally.cricket.service.activities.activity_counts import ActivityCounts
from tally.cricket.service.activities.channels import MatchChannels
from tally.cricket.service.activities.endings import ActivityEnder
from tally.cricket.service.activities.finishing import MatchFinisher
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.cricket.service.activities.notifications import FollowerNotifier
from tally.cricket.service.activities.orchestrator import MatchOrchestrator
from tally.cricket.service.activities.prematch import PrematchNotifier
from tally.cricket.service.activities.starts import ActivityStarter
from tally.cricket.service.activities.sweeps import Sweeper
from tally.cricket.service.activities.toss import TossNotifier
from tally.cricket.service.live import poller
from tally.cricket.service.live.ball_log_cache import BallLogCache
from tally.cricket.service.live.enrichment import FixtureEnricher
from tally.cricket.service.live.metrics import FeedMetrics
from tally.cricket.service.live.pipeline import Pipeline
from tally.cricket.service.live.poller import PollIntervals, ScorePoller
from tally.cricket.service.live.reconciliation import Reconciliation
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import LiveScores, PushGateway, ReadDisplay
from tally.cricket.service.services import QueryServices
from tally.cricket.wiring.queries import build_replays
from tally.dependencies import Dependencies
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.locks import Lease
from tally.kit.ttl_cache import TTLCache
from tally.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveServices:
    """The services behind the live routes and jobs."""

    activities: ActivityService
    poller: ScorePoller
    orchestrator: MatchOrchestrator
    prematch: PrematchNotifier
    workers: MatchWorkers
    replays: ReplayService


@dataclass(frozen=True, slots=True)
class ActivityFactory:
    """Builds the services around Live Activities from their shared collaborators."""

    repositories: Repositories
    apns: PushGateway
    read_display: ReadDisplay
    clock: Clock
    owner: str

    def locks(self) -> StoreLocks:
        # One holder per job: two jobs of an instance must not extend each other's locks.
        return StoreLocks(self.repositories.locks, self.clock, new_uuid())

    def starter(self) -> ActivityStarter:
        return ActivityStarter(
            self.repositories.activities, self.repositories.devices, self.apns, self.clock
        )

    def ender(self) -> ActivityEnder:
        return ActivityEnder(self.repositories.activities, self.apns, self.clock)

    def activities(self) -> ActivityService:
        return ActivityService(
            repositories=self.repositories,
            starter=self.starter(),
            ender=self.ender(),
            apns=self.apns,
            read_display=self.read_display,
            clock=self.clock,
        )

    def orchestrator(self, counts: ActivityCounts, *, uses_channels: bool) -> MatchOrchestrator:
        repositories, clock = self.repositories, self.clock
        sweeper = Sweeper(
            follows=repositories.follows,
            activities=repositories.activities,
            starter=self.starter(),
            ender=self.ender(),
            read_display=self.read_display,
            clock=clock,
            counts=counts,
            checked=TTLCache(clock, sweeps.CHECKED_CACHE_SECONDS, sweeps.MAX_CHECKED_CACHED),
        )
        finisher = MatchFinisher(
            repositories=repositories,
            ender=self.ender(),
            apns=self.apns,
            read_display=self.read_display,
            clock=clock,
        )
        return MatchOrchestrator(
            fixtures=repositories.fixtures,
            matches=repositories.matches,
            sweeper=sweeper,
            finisher=finisher,
            channels=MatchChannels(repositories.matches, self.apns, clock, uses_channels),
            locks=self.locks(),
            clock=clock,
            owner=self.owner,
        )

    def notifier(self) -> FollowerNotifier:
        return FollowerNotifier(
            follows=self.repositories.follows,
            notices=self.repositories.notifications,
            devices=self.repositories.devices,
            apns=self.apns,
            clock=self.clock,
            notified=TTLCache(
                self.clock,
                notifications.NOTIFIED_CACHE_SECONDS,
                notifications.MAX_NOTIFIED_CACHED,
            ),
        )


@asynccontextmanager
async def open_live(
    dependencies: Dependencies,
    repositories: Repositories,
    queries: QueryServices,
    scores: LiveScores,
    apns: PushGateway,
) -> AsyncIterator[LiveServices]:
    """Open the live services; closing them releases the matches of this instance."""
    clock, settings = dependencies.clock, dependencies.settings
    replays = build_replays(repositories, queries.feeds, clock)
    factory = ActivityFactory(repositories, apns, queries.displays.content, clock, new_uuid())
    notifier = factory.notifier()
    metrics = FeedMetrics(clock, dependencies.metrics.registry)
    pipeline = Pipeline(
        repositories=repositories,
        ball_logs=BallLogCache(repositories.processing, clock),
        feeds=queries.feeds,
        apns=apns,
        clock=clock,
        owner=factory.owner,
        metrics=metrics,
    )
    async with (
        MatchWorkers(pipeline, factory.locks(), clock) as workers,
        _poller_lease(factory) as lease,
    ):
        yield LiveServices(
            activities=factory.activities(),
            poller=_poller(
                factory,
                queries,
                replays,
                scores,
                workers,
                lease=lease,
                metrics=metrics,
                notifier=notifier,
                settings=settings,
            ),
            orchestrator=factory.orchestrator(
                ActivityCounts(clock, dependencies.metrics.registry),
                uses_channels=settings.cricket_apns_channels,
            ),
            prematch=PrematchNotifier(
                fixtures=repositories.fixtures,
                leagues=queries.leagues,
                notifier=notifier,
                read_display=queries.displays.content,
                locks=factory.locks(),
                clock=clock,
            ),
            workers=workers,
            replays=replays,
        )


@asynccontextmanager
async def _poller_lease(factory: ActivityFactory) -> AsyncIterator[Lease]:
    lease = Lease(factory.locks(), factory.clock, poller.LEASE_NAME, poller.LEASE_SECONDS)
    try:
        yield lease
    finally:
        await lease.release()


def _poller(
    factory: ActivityFactory,
    queries: QueryServices,
    replays: ReplayService,
    scores: LiveScores,
    workers: MatchWorkers,
    *,
    lease: Lease,
    metrics: FeedMetrics,
    notifier: FollowerNotifier,
    settings: Settings,
) -> ScorePoller:
    repositories, clock = factory.repositories, factory.clock
    toss_notifier = TossNotifier(
        fixtures=repositories.fixtures,
        notifier=notifier,
        locks=factory.locks(),
        clock=clock,
        notified=TTLCache(clock, toss.NOTIFIED_CACHE_SECONDS, toss.MAX_NOTIFIED_CACHED),
    )
    enricher = FixtureEnricher(
        repositories.cache, repositories.teams, repositories.leagues, repositories.seasons, clock
    )
    return ScorePoller(
        scores=scores,
        workers=workers,
        reconciliation=Reconciliation(
            scores, workers, repositories.fixtures, repositories.matches, clock
        ),
        fixtures=repositories.fixtures,
        feeds=queries.feeds,
        replays=replays,
        lease=lease,
        metrics=metrics,
        clock=clock,
        intervals=PollIntervals(
            live=settings.cricket_poll_ms / 1000, idle=settings.cricket_idle_poll_ms / 1000
        ),
        enrich=enricher.enrich,
        notify_toss=toss_notifier.check,
    )
