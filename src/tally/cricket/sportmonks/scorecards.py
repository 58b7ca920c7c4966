"""Translates the scorecard of an innings: total, extras, batters and bowlers."""

from collections.abc import Iterable, Mapping
from typing import Final

from tally.cricket.model.feed import BatterLine, BowlerLine, Extras, InningsFeed, WicketKind
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.conversions import id_text, parse_overs, resolve_caught_and_bowled
from tally.cricket.sportmonks.score_names import wicket_kind_for

FIRST_SUPER_OVER: Final = 5


def translate_innings(
    fixture: payloads.SportMonksFixture, number: int, order: int, names: Mapping[int, str]
) -> InningsFeed:
    run = next((run for run in reversed(fixture.runs or ()) if run.inning == number), None)
    name = f"S{number}"
    batting = sorted(
        (line for line in fixture.batting or () if line.scoreboard.upper() == name),
        key=lambda line: line.sort or 0,
    )
    bowling = sorted(
        (line for line in fixture.bowling or () if line.scoreboard.upper() == name),
        key=lambda line: line.sort or 0,
    )
    team_id = run.team_id if run is not None else _batting_team(fixture, name)
    return InningsFeed(
        number=order,
        team_id=str(team_id),
        is_super_over=number >= FIRST_SUPER_OVER,
        runs=run.score or 0 if run is not None else 0,
        wickets=run.wickets or 0 if run is not None else 0,
        overs=parse_overs(run.overs if run is not None else None),
        batters=tuple(_batter(line, names) for line in batting),
        bowlers=tuple(_bowler(line, names) for line in bowling),
        extras=_extras(fixture, name),
    )


def _batting_team(fixture: payloads.SportMonksFixture, name: str) -> int:
    rows: Iterable[payloads.SportMonksBatting | payloads.SportMonksBall] = (
        *(fixture.batting or ()),
        *(fixture.balls or ()),
    )
    batting = next(
        (row.team_id for row in rows if row.scoreboard.upper() == name and row.team_id), None
    )
    if batting is not None:
        return batting
    bowling = next(
        (row.team_id for row in fixture.bowling or () if row.scoreboard.upper() == name), None
    )
    return fixture.localteam_id if bowling == fixture.visitorteam_id else fixture.visitorteam_id


def _extras(fixture: payloads.SportMonksFixture, name: str) -> Extras | None:
    for row in fixture.scoreboards or ():
        if row.scoreboard.upper() == name and row.type == "extra":
            return Extras(
                wides=row.wide or 0,
                noballs=row.noball_runs or 0,
                byes=row.bye or 0,
                leg_byes=row.leg_bye or 0,
                penalty=row.penalty or 0,
            )
    return None


def _batter(line: payloads.SportMonksBatting, names: Mapping[int, str]) -> BatterLine:
    how_out = _how_out(line)
    return BatterLine(
        player_id=str(line.player_id),
        name=names.get(line.player_id, ""),
        runs=line.score or 0,
        balls=line.ball or 0,
        fours=line.four_x or 0,
        sixes=line.six_x or 0,
        is_at_crease=bool(line.active) and how_out is None,
        how_out=how_out,
        bowler_id=id_text(line.bowling_player_id),
        sort=line.sort or 0,
    )


def _how_out(line: payloads.SportMonksBatting) -> WicketKind | None:
    """Return how the batter was out: by the name of the result, else by the players involved."""
    if line.result is not None:
        kind = wicket_kind_for(line.result.name) or (
            WicketKind.OTHER if line.result.is_wicket else None
        )
        return resolve_caught_and_bowled(
            kind, line.result.name, line.catch_stump_player_id, line.bowling_player_id
        )
    if line.runout_by_id is not None:
        return WicketKind.RUN_OUT
    return None if line.bowling_player_id is None else WicketKind.OTHER


def _bowler(line: payloads.SportMonksBowling, names: Mapping[int, str]) -> BowlerLine:
    overs, balls = parse_overs(line.overs)
    return BowlerLine(
        player_id=str(line.player_id),
        name=names.get(line.player_id, ""),
        overs=overs,
        balls=balls,
        maidens=line.medians or 0,
        runs=line.runs or 0,
        wickets=line.wickets or 0,
        wides=line.wide or 0,
        noballs=line.noball or 0,
        is_bowling=bool(line.active),
    )
