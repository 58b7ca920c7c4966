"""The query services as one object."""

from dataclasses import dataclass

from tally.cricket.service.queries.admin import AdminService
from tally.cricket.service.queries.display import DisplayService
from tally.cricket.service.queries.feeds import FeedCache
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.queries.matches import MatchService
from tally.cricket.service.queries.teams import TeamService


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryServices:
    """Services that read, with their caches."""

    teams: TeamService
    leagues: LeagueService
    feeds: FeedCache
    matches: MatchService
    displays: DisplayService
    admin: AdminService
