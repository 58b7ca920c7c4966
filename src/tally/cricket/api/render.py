"""The domain as bodies that go out: every struct of `wire.py` that is sent is made here."""

from typing import Any

from tally.cricket.api.schemas import (
    ActivityBody,
    DeviceBody,
    FollowBody,
    LeagueBody,
    LeagueOfMatch,
    MatchBody,
    Playing,
    SeasonTeamBody,
    SubscriptionBody,
    TeamBody,
    TossBody,
)
from tally.cricket.model.feed import InningsFeed
from tally.cricket.model.records import (
    NEUTRAL,
    ActivitySubscription,
    Fixture,
    Follow,
    League,
    LiveActivity,
    Team,
    TeamSeason,
    UserDevice,
)
from tally.cricket.service.queries.matches import MatchView
from tally.kit.jsonable import to_jsonable


def match_body(view: MatchView) -> MatchBody:
    fixture = view.fixture
    return MatchBody(
        match_id=fixture.match_id,
        league=_league_of(fixture, view.league),
        season_id=fixture.season_id,
        teams=[
            _playing(view, team_id, team)
            for team_id, team in zip(fixture.team_ids, view.sides, strict=True)
        ],
        match_type=fixture.match_type,
        start_time=fixture.start_time,
        status=fixture.status.value,
        is_live=fixture.is_live,
        is_stale=view.heard is not None and fixture.is_live and view.heard.is_stale,
        is_over=fixture.archived_at is not None or fixture.status.is_over,
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


def _league_of(fixture: Fixture, league: League | None) -> LeagueOfMatch:
    if league is None:
        return LeagueOfMatch(fixture.league_id, fixture.league_code, fixture.league_code, "")
    return LeagueOfMatch(league.league_id, league.code, league.name, league.image_url)


def _playing(view: MatchView, team_id: str, team: Team | None) -> Playing:
    """The side as our tables know it, or as was noted when the match was on, or as the score service calls it."""
    feed = None if view.heard is None else view.heard.feed
    side = None if feed is None else feed.side(team_id)
    noted = None if view.heard is None else view.heard.enrichment.get("teams", {}).get(team_id)
    scores = (
        []
        if feed is None
        else [_score(innings) for innings in feed.innings if innings.team_id == team_id]
    )
    if team is not None:
        return Playing(team_id, team.name, team.code, team.image_url, scores)
    if noted is not None:
        return Playing(team_id, noted["name"], noted["code"], noted["imageUrl"], scores)
    if side is not None:
        return Playing(team_id, side.name, side.code, side.image_url, scores)
    return Playing(team_id, "", "", "", scores)


def _score(innings: InningsFeed) -> str:
    declared = "d" if innings.is_declared else ""
    return f"{innings.runs}/{innings.wickets}{declared} ({innings.overs})"


def team_body(team: Team) -> TeamBody:
    return TeamBody(
        team.team_id,
        team.name,
        team.code,
        team.image_url,
        team.country_id,
        team.is_national,
        team.color,
        team.updated_at,
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
        record.season_id,
        record.team_id,
        record.league_id,
        record.name,
        record.code,
        to_jsonable(record.stats),
        record.updated_at,
    )


def device_body(device: UserDevice) -> DeviceBody:
    return DeviceBody(
        device.device_token,
        device.device_id,
        device.platform,
        device.os_version,
        device.app_version,
        device.push_to_start_token is not None,
        device.created_at,
        device.updated_at,
        device.expires_at,
    )


def follow_body(follow: Follow, display: dict[str, Any] | None = None) -> FollowBody:
    return FollowBody(
        follow.match_id, _team(follow.team_id), follow.created_at, follow.expires_at, display
    )


def subscription_body(subscription: ActivitySubscription) -> SubscriptionBody:
    team_id = _team(subscription.team_id)
    return SubscriptionBody(
        subscription.match_id, team_id, subscription.created_at, subscription.expires_at
    )


def activity_body(activity: LiveActivity) -> ActivityBody:
    return ActivityBody(
        activity.match_id,
        activity.device_id,
        activity.status.value,
        None if activity.end_reason is None else activity.end_reason.value,
        _team(activity.team_id),
        activity.created_at,
        activity.updated_at,
    )


def _team(team_id: str) -> str | None:
    """Nobody outside knows our word for no side."""
    return None if team_id == NEUTRAL else team_id
