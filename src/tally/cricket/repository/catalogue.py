"""All repositories of cricket, one for each table, in the order of the documents."""

from typing import Final

from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.devices import UserDeviceRepository
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.locks import LockRepository
from tally.cricket.repository.notifications import NotificationRepository
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository

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
)
