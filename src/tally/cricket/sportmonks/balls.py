"""Translates the balls of a fixture."""

from collections.abc import Iterator, Mapping

from tally.cricket.model.feed import Ball, Wicket, WicketKind
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.conversions import (
    innings_number,
    parse_overs,
    resolve_caught_and_bowled,
)
from tally.cricket.sportmonks.score_names import parse_score


def translate_balls(
    fixture: payloads.SportMonksFixture, numbers: Mapping[int, int], names: Mapping[int, str]
) -> Iterator[Ball]:
    """Yield each ball once, in order of ids; a later entry replaces an earlier one with its id."""
    latest = {ball.id: ball for ball in fixture.balls or ()}
    for ball_id in sorted(latest):
        ball = latest[ball_id]
        yield _ball(ball, numbers[innings_number(ball.scoreboard)], names)


def _ball(ball: payloads.SportMonksBall, innings: int, names: Mapping[int, str]) -> Ball:
    score = parse_score(ball.score)
    over, number = parse_overs(ball.ball)
    at_crease = (ball.batsman_one_on_creeze_id, ball.batsman_two_on_creeze_id)
    extras = score.wides + score.noballs + score.byes + score.leg_byes + score.penalty
    return Ball(
        id=ball.id,
        innings=innings,
        over=over,
        number=number,
        batting_team_id=str(ball.team_id),
        striker_id=str(ball.batsman_id),
        striker_name=names.get(ball.batsman_id, ""),
        non_striker_id=next(
            (str(batter) for batter in at_crease if batter not in {None, ball.batsman_id}), None
        ),
        bowler_id=str(ball.bowler_id),
        bowler_name=names.get(ball.bowler_id, ""),
        runs_bat=score.runs_bat,
        runs_total=score.runs_bat + extras,
        wides=score.wides,
        noballs=score.noballs,
        byes=score.byes,
        leg_byes=score.leg_byes,
        penalty=score.penalty,
        is_boundary_four=score.is_four,
        is_boundary_six=score.is_six,
        wicket=_wicket(ball, score.kind, names),
        updated_at=ball.updated_at or "",
        is_delivery=score.is_delivery,
    )


def _wicket(
    ball: payloads.SportMonksBall, kind: WicketKind | None, names: Mapping[int, str]
) -> Wicket | None:
    resolved = resolve_caught_and_bowled(kind, ball.score.name, ball.catchstump_id, ball.bowler_id)
    if resolved is None:
        return None
    player_out = ball.batsmanout_id or ball.batsman_id
    fielder_ids = (ball.runout_by_id, ball.catchstump_id)
    fielders = tuple(
        names.get(fielder_id, str(fielder_id))
        for fielder_id in fielder_ids
        if fielder_id is not None
    )
    return Wicket(
        str(player_out),
        names.get(player_out, ""),
        resolved,
        fielders if resolved is not WicketKind.CAUGHT_AND_BOWLED else (),
    )
