"""The backend's services as one object, for handlers, jobs and the console."""

from dataclasses import dataclass

from tally.cricket.service.activities.devices import DeviceService
from tally.cricket.service.activities.follows import FollowService
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.cricket.service.activities.operator_actions import OperatorActions
from tally.cricket.service.activities.team_follows import TeamFollowService
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.queries.admin import AdminService
from tally.cricket.service.queries.display import DisplayService
from tally.cricket.service.queries.feeds import FeedCache
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.queries.matches import MatchService
from tally.cricket.service.queries.teams import TeamService
from tally.cricket.service.queries.timeline import TimelineService
from tally.cricket.service.sync.reference_data import SyncService


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryServices:
    """Services that read, with their caches."""

    teams: TeamService
    leagues: LeagueService
    feeds: FeedCache
    matches: MatchService
    displays: DisplayService
    timelines: TimelineService
    admin: AdminService


@dataclass(frozen=True, slots=True, kw_only=True)
class CricketServices:
    """Every use case that a request, a job or the console can start."""

    queries: QueryServices
    devices: DeviceService
    follows: FollowService
    team_follows: TeamFollowService
    activities: ActivityService
    replays: ReplayService
    sync: SyncService
    operator_actions: OperatorActions
