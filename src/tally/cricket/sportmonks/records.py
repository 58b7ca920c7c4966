"""Translates fixtures, teams, leagues and seasons to records of the tables."""

from typing import Final

from tally.cricket.model import records
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.conversions import id_text, match_status, parse_start_time

MAX_CODE_LENGTH: Final = 32


def fixture_record(
    fixture: payloads.SportMonksFixture, now: int, league_code: str | None = None
) -> records.Fixture:
    """Return the record of a fixture; the league id replaces a missing league code."""
    code = league_code or (fixture.league.code if fixture.league is not None else None)
    return records.Fixture(
        match_id=str(fixture.id),
        league_id=str(fixture.league_id),
        league_code=(code or str(fixture.league_id))[:MAX_CODE_LENGTH],
        season_id=id_text(fixture.season_id) or "",
        home_team_id=str(fixture.localteam_id),
        away_team_id=str(fixture.visitorteam_id),
        match_type=fixture.type or "",
        start_time=parse_start_time(fixture.starting_at),
        status=match_status(fixture.status),
        updated_at=now,
        round=fixture.round or "",
        venue_id=id_text(fixture.venue_id),
        note=fixture.note or "",
        toss_team_id=id_text(fixture.toss_won_team_id),
        elected=fixture.elected if fixture.toss_won_team_id is not None else None,
        winner_team_id=id_text(fixture.winner_team_id),
    )


def team_record(team: payloads.SportMonksTeam, now: int) -> records.Team:
    return records.Team(
        team_id=str(team.id),
        name=team.name,
        code=(team.code or "")[:MAX_CODE_LENGTH],
        updated_at=now,
        image_url=team.image_path or "",
        country_id=id_text(team.country_id) or "",
        is_national=bool(team.national_team),
    )


def league_record(league: payloads.SportMonksLeague, now: int) -> records.League:
    return records.League(
        league_id=str(league.id),
        name=league.name,
        code=(league.code or str(league.id))[:MAX_CODE_LENGTH],
        updated_at=now,
        season_id=id_text(league.season_id),
        country_id=id_text(league.country_id) or "",
        image_url=league.image_path or "",
        type=league.type or "",
    )


def team_season_record(
    season: payloads.SportMonksSeason, team: payloads.SportMonksTeam, league_id: str, now: int
) -> records.TeamSeason:
    return records.TeamSeason(
        season_id=str(season.id),
        team_id=str(team.id),
        league_id=league_id,
        name=team.name,
        code=(team.code or "")[:MAX_CODE_LENGTH],
        updated_at=now,
    )
