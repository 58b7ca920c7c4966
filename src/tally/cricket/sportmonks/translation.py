"""Turns a fixture of SportMonks' into a MatchFeed: ids into text, their words into ours, overs into two whole numbers.

Their innings have the numbers 1 to 4, and 5 and up in super overs; ours count in order of play.
"""

from collections.abc import Iterable
from typing import Final

from tally.cricket.model.feed import MatchFeed, MatchStatus, Side, Target, Toss
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.balls import translate_balls
from tally.cricket.sportmonks.conversions import (
    MalformedFixture,
    id_text,
    innings_number,
    match_status,
    parse_decimal,
    parse_overs,
    starts_at,
)
from tally.cricket.sportmonks.people import name_of, player_names
from tally.cricket.sportmonks.scorecards import translate_innings

OVERS: Final = {"t20": 20, "t20i": 20, "t10": 10, "odi": 50, "list a": 50}


def translate_match(
    fixture: payloads.SportMonksFixture, received_at: int, with_balls: bool = True
) -> MatchFeed:
    """What a fixture says about its match."""
    sides = (
        _side(fixture.localteam_id, fixture.localteam),
        _side(fixture.visitorteam_id, fixture.visitorteam),
    )
    if sides[0].team_id == sides[1].team_id:
        raise MalformedFixture("a team plays against itself")
    names = player_names(fixture)
    numbers = _numbers(fixture)
    status = match_status(fixture.status)
    innings = tuple(
        translate_innings(fixture, number, place, names) for number, place in numbers.items()
    )
    has_balls = with_balls and fixture.balls is not None
    return MatchFeed(
        match_id=str(fixture.id),
        league_id=str(fixture.league_id),
        season_id=id_text(fixture.season_id) or "",
        match_type=fixture.type or "",
        total_overs=_total_overs(fixture),
        teams=sides,
        starts_at=starts_at(fixture.starting_at),
        status=status,
        status_text=fixture.status or "",
        is_live=status.is_running or (status is MatchStatus.DELAYED and bool(innings)),
        received_at=received_at,
        toss=_toss(fixture),
        innings=innings,
        note=fixture.note or "",
        winner_team_id=id_text(fixture.winner_team_id),
        draw_noresult=fixture.draw_noresult,
        is_super_over=bool(fixture.super_over) or any(each.is_super_over for each in innings),
        target=_target(fixture),
        man_of_match=name_of(names, fixture.man_of_match_id),
        balls=tuple(translate_balls(fixture, numbers, names)) if has_balls else None,
    )


def _side(team_id: int, team: payloads.SportMonksTeam | None) -> Side:
    if team is None:
        return Side(str(team_id), "")
    return Side(str(team_id), team.name, team.code or "", team.image_path or "")


def _toss(fixture: payloads.SportMonksFixture) -> Toss | None:
    if fixture.toss_won_team_id is None:
        return None
    return Toss(
        str(fixture.toss_won_team_id), "bowling" if fixture.elected == "bowling" else "batting"
    )


def _total_overs(fixture: payloads.SportMonksFixture) -> int | None:
    """By the sort of match, unless it was shortened before it began: overs without a target say that."""
    usual = OVERS.get((fixture.type or "").strip().lower())
    shortened = parse_decimal(fixture.rpc_overs)
    if usual is None or shortened is None or parse_decimal(fixture.rpc_target):
        return usual
    return min(usual, int(shortened)) if shortened >= 1 else usual


def _target(fixture: payloads.SportMonksFixture) -> Target | None:
    runs, overs = parse_decimal(fixture.rpc_target), parse_decimal(fixture.rpc_overs)
    if not runs:
        return None
    return Target(int(runs), parse_overs(overs) if overs else None)


def _numbers(fixture: payloads.SportMonksFixture) -> dict[int, int]:
    """Our number of each innings by theirs."""
    found = {run.inning for run in fixture.runs or ()}
    rows: Iterable[
        payloads.SportMonksBatting | payloads.SportMonksBowling | payloads.SportMonksBall
    ] = (
        *(fixture.batting or ()),
        *(fixture.bowling or ()),
        *(fixture.balls or ()),
    )
    found |= {innings_number(scoreboard) for scoreboard in {row.scoreboard for row in rows}}
    return {number: place for place, number in enumerate(sorted(found), 1)}
