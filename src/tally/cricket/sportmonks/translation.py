"""Translates a SportMonks fixture to a `MatchFeed`.

SportMonks numbers innings 1 to 4, and super overs from 5; the model numbers them in order of play.
"""

from collections.abc import Iterable, Iterator, Mapping
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
    parse_start_time,
)
from tally.cricket.sportmonks.scorecards import translate_innings

FORMAT_OVERS: Final = {"t20": 20, "t20i": 20, "t10": 10, "odi": 50, "list a": 50}


def translate_match(
    fixture: payloads.SportMonksFixture, received_at: int, with_balls: bool = True
) -> MatchFeed:
    """Translate a fixture with the relations it includes."""
    sides = (
        _side(fixture.localteam_id, fixture.localteam),
        _side(fixture.visitorteam_id, fixture.visitorteam),
    )
    if sides[0].team_id == sides[1].team_id:
        raise MalformedFixture("both teams have the same id")
    names = player_names(fixture)
    numbers = _numbers(fixture)
    status = match_status(fixture.status)
    innings = tuple(
        translate_innings(fixture, number, order, names) for number, order in numbers.items()
    )
    has_balls = with_balls and fixture.balls is not None
    return MatchFeed(
        match_id=str(fixture.id),
        league_id=str(fixture.league_id),
        season_id=id_text(fixture.season_id) or "",
        match_type=fixture.type or "",
        total_overs=_total_overs(fixture),
        teams=sides,
        starts_at=parse_start_time(fixture.starting_at),
        status=status,
        status_text=fixture.status or "",
        is_live=status.is_running or (status is MatchStatus.DELAYED and bool(innings)),
        received_at=received_at,
        toss=_toss(fixture),
        innings=innings,
        note=fixture.note or "",
        winner_team_id=id_text(fixture.winner_team_id),
        draw_noresult=fixture.draw_noresult,
        is_super_over=bool(fixture.super_over) or any(played.is_super_over for played in innings),
        target=_target(fixture),
        man_of_match=None
        if fixture.man_of_match_id is None
        else names.get(fixture.man_of_match_id),
        balls=tuple(translate_balls(fixture, numbers, names)) if has_balls else None,
    )


def _side(team_id: int, team: payloads.SportMonksTeam | None) -> Side:
    if team is None:
        return Side(str(team_id), "")
    return Side(str(team_id), team.name, team.code or "", team.image_path or "")


def _toss(fixture: payloads.SportMonksFixture) -> Toss | None:
    if fixture.toss_won_team_id is None:
        return None
    elected = (fixture.elected or "").strip().lower()
    return Toss(str(fixture.toss_won_team_id), elected if elected in {"batting", "bowling"} else "")


def _total_overs(fixture: payloads.SportMonksFixture) -> int | None:
    """Return the overs per innings of the format, or fewer if the match was shortened at the start.

    Revised overs without a revised target mean that.
    """
    usual = FORMAT_OVERS.get((fixture.type or "").strip().lower())
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
    """Map the SportMonks number of each innings to its number in order of play."""
    numbers = {run.inning for run in fixture.runs or ()}
    rows: Iterable[
        payloads.SportMonksBatting | payloads.SportMonksBowling | payloads.SportMonksBall
    ] = (
        *(fixture.batting or ()),
        *(fixture.bowling or ()),
        *(fixture.balls or ()),
    )
    numbers |= {innings_number(scoreboard) for scoreboard in {row.scoreboard for row in rows}}
    return {number: order for order, number in enumerate(sorted(numbers), 1)}


def player_names(fixture: payloads.SportMonksFixture) -> Mapping[int, str]:
    """Return the names of all players in the fixture by id."""
    return {
        player.id: name
        for player in _players(fixture)
        if player is not None and (name := _full_name(player))
    }


def _players(fixture: payloads.SportMonksFixture) -> Iterator[payloads.SportMonksPlayer | None]:
    yield from fixture.lineup or ()
    for ball in fixture.balls or ():
        yield ball.batsman
        yield ball.bowler
    yield from (line.batsman for line in fixture.batting or ())
    yield from (line.bowler for line in fixture.bowling or ())
    yield fixture.manofmatch


def _full_name(player: payloads.SportMonksPlayer) -> str:
    return player.fullname or " ".join(filter(None, (player.firstname, player.lastname)))
