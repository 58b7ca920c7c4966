"""The live side of the backend, put together: from the score service to the devices, and the jobs that drive it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tally.cricket.api.events import MatchFollower, MatchPublisher, match_follower
from tally.cricket.repository.locks import StoreLocks
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities import alerts, sweeps, toss
from tally.cricket.service.activities.activities import ActivityService
from tally.cricket.service.activities.alerts import Alerts
from tally.cricket.service.activities.channels import MatchChannels
from tally.cricket.service.activities.endings import Ender
from tally.cricket.service.activities.finishing import Finisher
from tally.cricket.service.activities.orchestrator import MatchOrchestrator
from tally.cricket.service.activities.prematch import PrematchNotifier
from tally.cricket.service.activities.starts import Starter
from tally.cricket.service.activities.sweeps import Sweeper
from tally.cricket.service.activities.toss import TossAnnouncer
from tally.cricket.service.live.enrichment import Enricher
from tally.cricket.service.live.pipeline import Pipeline
from tally.cricket.service.live.poller import LiveScore
from tally.cricket.service.live.processing import MatchProcessing
from tally.cricket.service.live.reconciliation import Reconciliation
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import LiveScores, PushGateway, Show
from tally.cricket.wiring.queries import Reading
from tally.kit.clock import Clock
from tally.kit.hub import Hub
from tally.kit.ids import new_uuid
from tally.kit.ttl_cache import TTLCache
from tally.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What people's apps ask for, and what jobs do."""

    activities: ActivityService
    poller: LiveScore
    orchestrator: MatchOrchestrator
    prematch: PrematchNotifier
    workers: MatchWorkers
    follower: MatchFollower


@asynccontextmanager
async def open_live(
    tables: Repositories,
    reading: Reading,
    scores: LiveScores,
    apns: PushGateway,
    *,
    hub: Hub,
    clock: Clock,
    settings: Settings,
) -> AsyncIterator[Live]:
    """The live side for as long as this lasts; at the end, this instance lets go of its matches."""
    owner = new_uuid()

    def locks() -> StoreLocks:
        # A holder of its own for each job: two jobs of an instance must not extend each other's
        # locks.
        return StoreLocks(tables.locks, clock, new_uuid())

    starter = Starter(tables.activities, tables.devices, apns, clock)
    ender = Ender(tables.activities, apns, clock)
    follower = match_follower(tables, hub, clock)
    pipeline = _pipeline(tables, reading, apns, MatchPublisher(follower), clock=clock, owner=owner)
    told = alerts_of(tables, apns, clock)
    channels = MatchChannels(tables.matches, apns, clock, settings.cricket_apns_channels)
    async with follower, MatchWorkers(pipeline, locks(), clock) as workers:
        yield Live(
            activities=activity_service(tables, starter, ender, reading.show),
            poller=LiveScore(
                scores=scores,
                workers=workers,
                reconciliation=Reconciliation(
                    scores, workers, tables.fixtures, tables.matches, clock
                ),
                fixtures=tables.fixtures,
                feeds=reading.feeds,
                replays=reading.replays,
                clock=clock,
                live_seconds=settings.cricket_poll_ms / 1000,
                idle_seconds=settings.cricket_idle_poll_ms / 1000,
                enrich=Enricher(tables.cache, reading.teams, reading.leagues, clock).enrich,
                tossed=TossAnnouncer(
                    fixtures=tables.fixtures,
                    alerts=told,
                    locks=locks(),
                    clock=clock,
                    told=TTLCache(clock, toss.TOLD_SECONDS, toss.MAX_TOLD),
                ).check,
            ),
            orchestrator=match_orchestrator(
                tables, starter, ender, reading.show, channels=channels, locks=locks(), owner=owner
            ),
            prematch=PrematchNotifier(
                fixtures=tables.fixtures,
                leagues=reading.leagues,
                alerts=told,
                show=reading.show,
                locks=locks(),
                clock=clock,
            ),
            workers=workers,
            follower=follower,
        )


def _pipeline(
    tables: Repositories,
    reading: Reading,
    apns: PushGateway,
    publisher: MatchPublisher,
    *,
    clock: Clock,
    owner: str,
) -> Pipeline:
    return Pipeline(
        active=tables.matches,
        processing=MatchProcessing(tables.processing, clock),
        hashes=tables.hashes,
        displays=tables.displays,
        activities=tables.activities,
        subscriptions=tables.subscriptions,
        feeds=reading.feeds,
        apns=apns,
        publisher=publisher,
        clock=clock,
        owner=owner,
    )


def alerts_of(tables: Repositories, apns: PushGateway, clock: Clock) -> Alerts:
    """What tells followers of something in a notification, each of them once."""
    return Alerts(
        follows=tables.follows,
        notices=tables.notices,
        devices=tables.devices,
        apns=apns,
        clock=clock,
        told=TTLCache(clock, alerts.TOLD_SECONDS, alerts.MAX_TOLD),
    )


def activity_service(
    tables: Repositories, starter: Starter, ender: Ender, show: Show
) -> ActivityService:
    """What people's apps ask for of their Live Activities."""
    return ActivityService(
        activities=tables.activities,
        matches=tables.matches,
        fixtures=tables.fixtures,
        follows=tables.follows,
        subscriptions=tables.subscriptions,
        starter=starter,
        ender=ender,
        apns=starter.apns,
        show=show,
        clock=starter.clock,
    )


def match_orchestrator(
    tables: Repositories,
    starter: Starter,
    ender: Ender,
    show: Show,
    *,
    channels: MatchChannels,
    locks: StoreLocks,
    owner: str,
) -> MatchOrchestrator:
    """What takes up matches, heals what went wrong with their Live Activities, and ends them."""
    clock = starter.clock
    return MatchOrchestrator(
        fixtures=tables.fixtures,
        matches=tables.matches,
        sweeper=Sweeper(
            follows=tables.follows,
            activities=tables.activities,
            starter=starter,
            ender=ender,
            show=show,
            clock=clock,
            looked_at=TTLCache(clock, sweeps.LOOKED_AT_SECONDS, sweeps.MAX_LOOKED_AT),
        ),
        finisher=Finisher(
            activities=tables.activities,
            matches=tables.matches,
            follows=tables.follows,
            subscriptions=tables.subscriptions,
            hashes=tables.hashes,
            ender=ender,
            apns=starter.apns,
            show=show,
            clock=clock,
        ),
        channels=channels,
        locks=locks,
        clock=clock,
        owner=owner,
    )
