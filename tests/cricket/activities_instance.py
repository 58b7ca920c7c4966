"""Builds the Live Activity services of one of several instances that share a store."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.activity_counts import ActivityCounts
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.cricket.service.activities.orchestrator import MatchOrchestrator
from tally.cricket.service.activities.prematch import PrematchNotifier
from tally.cricket.service.activities.toss import TossNotifier
from tally.cricket.service.ports import PushGateway, ReadDisplay
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.wiring.live import ActivityFactory
from tally.kit.ttl_cache import TTLCache
from tally.store.store import Store


@dataclass(frozen=True, slots=True)
class Instance:
    """The Live Activity services of one instance."""

    orchestrator: MatchOrchestrator
    activities: ActivityService
    prematch: PrematchNotifier
    toss: TossNotifier


def make_instance(
    store: Store, apns: PushGateway, read_display: ReadDisplay, owner: str, *, uses_channels: bool
) -> Instance:
    clock, repositories = store.clock, Repositories.create(store)
    factory = ActivityFactory(repositories, apns, read_display, clock, owner)
    notifier = factory.notifier()
    return Instance(
        orchestrator=factory.orchestrator(
            ActivityCounts(clock, CollectorRegistry()), uses_channels=uses_channels
        ),
        activities=factory.activities(),
        prematch=PrematchNotifier(
            fixtures=repositories.fixtures,
            leagues=LeagueService(repositories.leagues, clock, TTLCache(clock, 0.0, 10)),
            notifier=notifier,
            read_display=read_display,
            locks=factory.locks(),
            clock=clock,
        ),
        toss=TossNotifier(
            fixtures=repositories.fixtures,
            notifier=notifier,
            locks=factory.locks(),
            clock=clock,
            notified=TTLCache(clock, 3_600.0, 100),
        ),
    )
