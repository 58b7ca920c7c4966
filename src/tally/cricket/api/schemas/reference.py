"""Schemas of reference data: teams, leagues and seasons."""

from typing import Annotated, Any

import msgspec

from tally.cricket.api.schemas.fields import CamelCaseBody
from tally.cricket.model.records import League, Team, TeamSeason
from tally.kit.body import StrictStruct
from tally.kit.jsonable import to_jsonable

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=120)]
TeamCode = Annotated[str, msgspec.Meta(min_length=1, max_length=12)]
ImageUrl = Annotated[str, msgspec.Meta(max_length=500, pattern=r"^(https?://\S+)?$")]
Color = Annotated[str, msgspec.Meta(pattern=r"^(#[0-9a-fA-F]{6})?$")]


class TeamBody(CamelCaseBody, frozen=True):
    team_id: str
    name: str
    code: str
    image_url: str
    country_id: str
    is_national: bool
    color: str
    updated_at: int


class TeamList(CamelCaseBody, frozen=True):
    items: list[TeamBody]
    next_cursor: str | None = None


class TeamChange(StrictStruct, frozen=True, rename="camel"):
    """The fields to change."""

    name: Name | msgspec.UnsetType = msgspec.UNSET
    code: TeamCode | msgspec.UnsetType = msgspec.UNSET
    image_url: ImageUrl | msgspec.UnsetType = msgspec.UNSET
    color: Color | msgspec.UnsetType = msgspec.UNSET


class LeagueBody(CamelCaseBody, frozen=True):
    """A league."""

    league_id: str
    name: str
    code: str
    season_id: str | None
    country_id: str
    image_url: str
    type: str
    active: bool
    updated_at: int


class LeagueList(CamelCaseBody, frozen=True):
    items: list[LeagueBody]
    next_cursor: str | None = None


class LeagueChange(StrictStruct, frozen=True, rename="camel"):
    """The fields to change. Matches of inactive leagues are not synced."""

    name: Name | msgspec.UnsetType = msgspec.UNSET
    image_url: ImageUrl | msgspec.UnsetType = msgspec.UNSET
    active: bool | msgspec.UnsetType = msgspec.UNSET


class SeasonTeamBody(CamelCaseBody, frozen=True):
    season_id: str
    team_id: str
    league_id: str
    name: str
    code: str
    stats: dict[str, Any]
    updated_at: int


class SeasonTeams(CamelCaseBody, frozen=True):
    items: list[SeasonTeamBody]
    next_cursor: str | None = None


def team_body(team: Team) -> TeamBody:
    return TeamBody(
        team_id=team.team_id,
        name=team.name,
        code=team.code,
        image_url=team.image_url,
        country_id=team.country_id,
        is_national=team.is_national,
        color=team.color,
        updated_at=team.updated_at,
    )


def league_body(league: League) -> LeagueBody:
    return LeagueBody(
        league_id=league.league_id,
        name=league.name,
        code=league.code,
        season_id=league.season_id,
        country_id=league.country_id,
        image_url=league.image_url,
        type=league.type,
        active=league.active,
        updated_at=league.updated_at,
    )


def season_team_body(record: TeamSeason) -> SeasonTeamBody:
    return SeasonTeamBody(
        season_id=record.season_id,
        team_id=record.team_id,
        league_id=record.league_id,
        name=record.name,
        code=record.code,
        stats=to_jsonable(record.stats),
        updated_at=record.updated_at,
    )
