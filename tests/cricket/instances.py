"""One program of several that share a store: the services around Live Activities, put together as the backend does it."""

from dataclasses import dataclass

from tally.cricket.repository.locks import StoreLocks
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.activities import ActivityService
from tally.cricket.service.activities.channels import MatchChannels
from tally.cricket.service.activities.endings import Ender
from tally.cricket.service.activities.orchestrator import MatchOrchestrator
from tally.cricket.service.activities.prematch import PrematchNotifier
from tally.cricket.service.activities.starts import Starter
from tally.cricket.service.activities.toss import TossAnnouncer
from tally.cricket.service.ports import PushGateway, Show
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.wiring.live import activity_service, alerts_of, match_orchestrator
from tally.kit.ttl_cache import TTLCache
from tally.store.store import Store


@dataclass(frozen=True, slots=True)
class Instance:
    """One program of several that share a store."""

    orchestrator: MatchOrchestrator
    activities: ActivityService
    prematch: PrematchNotifier
    toss: TossAnnouncer


def make_instance(
    store: Store, apns: PushGateway, show: Show, owner: str, *, uses_channels: bool
) -> Instance:
    clock, tables = store.clock, Repositories.of(store)
    starter, ender = (
        Starter(tables.activities, tables.devices, apns, clock),
        Ender(tables.activities, apns, clock),
    )
    alerts = alerts_of(tables, apns, clock)

    def locks(job: str) -> StoreLocks:
        return StoreLocks(tables.locks, clock, f"{owner}:{job}")

    channels = MatchChannels(tables.matches, apns, clock, uses_channels)
    return Instance(
        orchestrator=match_orchestrator(
            tables,
            starter,
            ender,
            show,
            channels=channels,
            locks=locks("orchestrator"),
            owner=owner,
        ),
        activities=activity_service(tables, starter, ender, show),
        prematch=PrematchNotifier(
            fixtures=tables.fixtures,
            leagues=LeagueService(tables.leagues, clock, TTLCache(clock, 0.0, 10)),
            alerts=alerts,
            show=show,
            locks=locks("prematch"),
            clock=clock,
        ),
        toss=TossAnnouncer(
            fixtures=tables.fixtures,
            alerts=alerts,
            locks=locks("toss"),
            clock=clock,
            told=TTLCache(clock, 3_600.0, 100),
        ),
    )
