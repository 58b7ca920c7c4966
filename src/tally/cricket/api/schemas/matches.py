"""Schemas of matches and display states."""

from typing import Annotated, Any, cast

import msgspec

from tally.cricket.api.schemas.fields import CamelCaseBody, Id, PageLimit
from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import Fixture, League
from tally.cricket.service.queries.display import MatchDisplay
from tally.cricket.service.queries.matches import MatchView, TeamInMatch
from tally.kit.body import StrictStruct

TimeText = Annotated[str, msgspec.Meta(min_length=4, max_length=40)]


class MatchQuery(StrictStruct, frozen=True):
    """`from` and `to` are times or dates such as 2026-11-15. The default is all active leagues."""

    league: Id | None = None
    start: TimeText | None = msgspec.field(name="from", default=None)
    end: TimeText | None = msgspec.field(name="to", default=None)
    status: MatchStatus | None = None
    limit: PageLimit = 50
    cursor: str | None = None


class ViewQuery(StrictStruct, frozen=True, rename="camel"):
    """The team whose view is requested; without a team, the neutral view."""

    team_id: Id | None = None


class MatchTeamBody(CamelCaseBody, frozen=True):
    """A team of a match, with its last known score per innings in order of play."""

    team_id: str
    name: str
    code: str
    image_url: str
    scores: list[str]


class MatchLeagueBody(CamelCaseBody, frozen=True):
    league_id: str
    code: str
    name: str
    image_url: str


class TossBody(CamelCaseBody, frozen=True):
    team_id: str
    elected: str


class MatchBody(CamelCaseBody, frozen=True):
    """A match. `isStale` is true when the score service has not delivered newer scores in time."""

    match_id: str
    league: MatchLeagueBody
    season_id: str
    teams: list[MatchTeamBody]
    match_type: str
    start_time: str
    status: str
    is_live: bool
    is_stale: bool
    is_over: bool
    round: str
    venue_id: str | None
    note: str
    toss: TossBody | None
    winner_team_id: str | None
    replay_of: str | None
    updated_at: int


class MatchPage(CamelCaseBody, frozen=True):
    items: list[MatchBody]
    next_cursor: str | None


class DisplayBody(CamelCaseBody, frozen=True):
    """`display` is the state that Live Activities show and pushes carry."""

    match_id: str
    team_id: str
    display: dict[str, Any]
    computed_at: int
    is_stale: bool


def match_body(view: MatchView) -> MatchBody:
    fixture = view.fixture
    return MatchBody(
        match_id=fixture.match_id,
        league=_league_body(fixture, view.league),
        season_id=fixture.season_id,
        teams=[_team_body(team) for team in view.teams],
        match_type=fixture.match_type,
        start_time=fixture.start_time,
        status=fixture.status.value,
        is_live=fixture.is_live,
        is_stale=view.is_stale,
        is_over=view.is_over,
        round=fixture.round,
        venue_id=fixture.venue_id,
        note=fixture.note,
        toss=None
        if fixture.toss_team_id is None
        else TossBody(fixture.toss_team_id, fixture.elected or ""),
        winner_team_id=fixture.winner_team_id,
        replay_of=fixture.replay_of,
        updated_at=fixture.updated_at,
    )


def _league_body(fixture: Fixture, league: League | None) -> MatchLeagueBody:
    if league is None:
        return MatchLeagueBody(fixture.league_id, fixture.league_code, fixture.league_code, "")
    return MatchLeagueBody(league.league_id, league.code, league.name, league.image_url)


def _team_body(team: TeamInMatch) -> MatchTeamBody:
    return MatchTeamBody(team.team_id, team.name, team.code, team.image_url, list(team.scores))


def display_body(display: MatchDisplay) -> DisplayBody:
    # The content is stored as JSON, and goes into the body as it is.
    content = cast("dict[str, Any]", msgspec.Raw(display.encoded_content))
    return DisplayBody(
        display.match_id, display.view, content, display.computed_at, display.is_stale
    )
