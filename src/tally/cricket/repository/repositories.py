"""All repositories of the backend, in the order of the documentation."""

from dataclasses import dataclass
from typing import Final, Self

from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.deleted_follows import DeletedFollowRepository
from tally.cricket.repository.devices import UserDeviceRepository
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.key_events import DisplayLog, KeyEventLog
from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.locks import LockRepository
from tally.cricket.repository.notifications import NotificationRepository
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.repository.request_windows import QuotaWindowRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.cricket.repository.timelines import TimelineRepository
from tally.store.store import Store

REPOSITORIES: Final = (
    FixtureRepository,
    TeamRepository,
    TeamSeasonRepository,
    LeagueRepository,
    UserDeviceRepository,
    FollowRepository,
    ActivitySubscriptionRepository,
    NotificationRepository,
    LockRepository,
    StateHashRepository,
    DisplayCacheRepository,
    FixtureCacheRepository,
    ProcessingRepository,
    LiveActivityRepository,
    ActiveMatchRepository,
    QuotaWindowRepository,
    TimelineRepository,
    DeletedFollowRepository,
    KeyEventLog,
    DisplayLog,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repositories:
    """One repository per table, or per tables that a transaction writes together."""

    fixtures: FixtureRepository
    teams: TeamRepository
    seasons: TeamSeasonRepository
    leagues: LeagueRepository
    devices: UserDeviceRepository
    follows: FollowRepository
    subscriptions: ActivitySubscriptionRepository
    notifications: NotificationRepository
    locks: LockRepository
    hashes: StateHashRepository
    displays: DisplayCacheRepository
    cache: FixtureCacheRepository
    processing: ProcessingRepository
    activities: LiveActivityRepository
    matches: ActiveMatchRepository
    request_windows: QuotaWindowRepository
    timelines: TimelineRepository
    deleted_follows: DeletedFollowRepository

    @classmethod
    def create(cls, store: Store) -> Self:
        return cls(
            fixtures=FixtureRepository(store),
            teams=TeamRepository(store),
            seasons=TeamSeasonRepository(store),
            leagues=LeagueRepository(store),
            devices=UserDeviceRepository(store),
            follows=FollowRepository(store),
            subscriptions=ActivitySubscriptionRepository(store),
            notifications=NotificationRepository(store),
            locks=LockRepository(store),
            hashes=StateHashRepository(store),
            displays=DisplayCacheRepository(store),
            cache=FixtureCacheRepository(store),
            processing=ProcessingRepository(store),
            activities=LiveActivityRepository(store),
            matches=ActiveMatchRepository(store),
            request_windows=QuotaWindowRepository(store),
            timelines=TimelineRepository(store),
            deleted_follows=DeletedFollowRepository(store),
        )
