"""One program of several that share a store: the services around Live Activities, put together as the backend does it."""

from dataclasses import dataclass

from tally.cricket.apns.port import Apns
from tally.cricket.repository.locks import StoreLocks
from tally.cricket.repository.tables import Tables
from tally.cricket.service.activities import ActivityService
from tally.cricket.service.alerts import MOST_TOLD, TOLD_SECONDS, Alerts
from tally.cricket.service.channels import MatchChannels
from tally.cricket.service.endings import Ender
from tally.cricket.service.finishing import Finisher
from tally.cricket.service.leagues import LeagueService
from tally.cricket.service.orchestrator import MatchOrchestrator
from tally.cricket.service.ports import Show
from tally.cricket.service.prematch import PrematchNotifier
from tally.cricket.service.starts import Starter
from tally.cricket.service.sweeps import LOOKED_AT_SECONDS, MOST_LOOKED_AT, Sweeper
from tally.cricket.service.toss import TossAnnouncer
from tally.kit.recent import Recent
from tally.store.store import Store


@dataclass(frozen=True, slots=True)
class Instance:
    """One program of several that share a store."""

    orchestrator: MatchOrchestrator
    activities: ActivityService
    prematch: PrematchNotifier
    toss: TossAnnouncer


def make_instance(store: Store, apns: Apns, show: Show, owner: str, *, uses_channels: bool) -> Instance:
    clock, tables = store.clock, Tables.of(store)
    starter, ender = Starter(tables.activities, tables.devices, apns, clock), Ender(tables.activities, apns, clock)
    alerts = Alerts(
        follows=tables.follows,
        notices=tables.notices,
        devices=tables.devices,
        apns=apns,
        clock=clock,
        told=Recent(clock, TOLD_SECONDS, MOST_TOLD),
    )
    return Instance(
        orchestrator=MatchOrchestrator(
            fixtures=tables.fixtures,
            matches=tables.matches,
            sweeper=_sweeper(tables, starter, ender, show),
            finisher=_finisher(tables, ender, show),
            channels=MatchChannels(tables.matches, apns, clock, uses_channels),
            locks=StoreLocks(tables.locks, clock, f"{owner}:orchestrator"),
            clock=clock,
            owner=owner,
        ),
        activities=ActivityService(
            activities=tables.activities,
            matches=tables.matches,
            fixtures=tables.fixtures,
            follows=tables.follows,
            subscriptions=tables.subscriptions,
            starter=starter,
            ender=ender,
            apns=apns,
            show=show,
            clock=clock,
        ),
        prematch=PrematchNotifier(
            fixtures=tables.fixtures,
            leagues=LeagueService(tables.leagues, clock, Recent(clock, 0.0, 10)),
            alerts=alerts,
            show=show,
            locks=StoreLocks(tables.locks, clock, f"{owner}:prematch"),
            clock=clock,
        ),
        toss=TossAnnouncer(
            fixtures=tables.fixtures,
            alerts=alerts,
            locks=StoreLocks(tables.locks, clock, f"{owner}:toss"),
            clock=clock,
            told=Recent(clock, 3_600.0, 100),
        ),
    )


def _sweeper(tables: Tables, starter: Starter, ender: Ender, show: Show) -> Sweeper:
    return Sweeper(
        follows=tables.follows,
        activities=tables.activities,
        starter=starter,
        ender=ender,
        show=show,
        clock=starter.clock,
        looked_at=Recent(starter.clock, LOOKED_AT_SECONDS, MOST_LOOKED_AT),
    )


def _finisher(tables: Tables, ender: Ender, show: Show) -> Finisher:
    return Finisher(
        activities=tables.activities,
        matches=tables.matches,
        follows=tables.follows,
        subscriptions=tables.subscriptions,
        hashes=tables.hashes,
        ender=ender,
        apns=ender.apns,
        show=show,
        clock=ender.clock,
    )
