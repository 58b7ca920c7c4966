"""Turns a fixture of SportMonks' into a MatchFeed: ids into text, their words into ours, overs into two whole numbers.

Their innings have the numbers 1 to 4, and 5 and up in super overs; ours count in order of play.
"""

from collections.abc import Iterable
from typing import Final

from tally.cricket.model.feed import MatchFeed, MatchStatus, Side, Target, Toss
from tally.cricket.sportmonks import wire
from tally.cricket.sportmonks.balls import balls_of
from tally.cricket.sportmonks.cards import innings_feed
from tally.cricket.sportmonks.people import name_of, names_in
from tally.cricket.sportmonks.words import (
    Unreadable,
    decimal_of,
    innings_number,
    overs_of,
    starts_at,
    status_of,
    text_of,
)

OVERS: Final = {"t20": 20, "t20i": 20, "t10": 10, "odi": 50, "list a": 50}


def match_feed(fixture: wire.Fixture, received_at: int, with_balls: bool = True) -> MatchFeed:
    """What a fixture says about its match."""
    sides = (
        _side(fixture.localteam_id, fixture.localteam),
        _side(fixture.visitorteam_id, fixture.visitorteam),
    )
    if sides[0].team_id == sides[1].team_id:
        raise Unreadable("a team plays against itself")
    names = names_in(fixture)
    numbers = _numbers(fixture)
    status = status_of(fixture.status)
    innings = tuple(
        innings_feed(fixture, number, place, names) for number, place in numbers.items()
    )
    has_balls = with_balls and fixture.balls is not None
    return MatchFeed(
        match_id=str(fixture.id),
        league_id=str(fixture.league_id),
        season_id=text_of(fixture.season_id) or "",
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
        winner_team_id=text_of(fixture.winner_team_id),
        draw_noresult=fixture.draw_noresult,
        is_super_over=bool(fixture.super_over) or any(each.is_super_over for each in innings),
        target=_target(fixture),
        man_of_match=name_of(names, fixture.man_of_match_id),
        balls=tuple(balls_of(fixture, numbers, names)) if has_balls else None,
    )


def _side(team_id: int, team: wire.Team | None) -> Side:
    if team is None:
        return Side(str(team_id), "")
    return Side(str(team_id), team.name, team.code or "", team.image_path or "")


def _toss(fixture: wire.Fixture) -> Toss | None:
    if fixture.toss_won_team_id is None:
        return None
    return Toss(
        str(fixture.toss_won_team_id), "bowling" if fixture.elected == "bowling" else "batting"
    )


def _total_overs(fixture: wire.Fixture) -> int | None:
    """By the sort of match, unless it was shortened before it began: overs without a target say that."""
    usual = OVERS.get((fixture.type or "").strip().lower())
    shortened = decimal_of(fixture.rpc_overs)
    if usual is None or shortened is None or decimal_of(fixture.rpc_target):
        return usual
    return min(usual, int(shortened)) if shortened >= 1 else usual


def _target(fixture: wire.Fixture) -> Target | None:
    runs, overs = decimal_of(fixture.rpc_target), decimal_of(fixture.rpc_overs)
    if not runs:
        return None
    return Target(int(runs), overs_of(overs) if overs else None)


def _numbers(fixture: wire.Fixture) -> dict[int, int]:
    """Our number of each innings by theirs."""
    found = {run.inning for run in fixture.runs or ()}
    rows: Iterable[wire.Batting | wire.Bowling | wire.Ball] = (
        *(fixture.batting or ()),
        *(fixture.bowling or ()),
        *(fixture.balls or ()),
    )
    found |= {innings_number(scoreboard) for scoreboard in {row.scoreboard for row in rows}}
    return {number: place for place, number in enumerate(sorted(found), 1)}
