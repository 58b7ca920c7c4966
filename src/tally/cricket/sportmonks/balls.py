"""The balls of a match, in order and each once, with what SportMonks' scores make of them."""

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
    """In order of their ids, each once: of two with one id, the later stands."""
    latest = {ball.id: ball for ball in fixture.balls or ()}
    for ball_id in sorted(latest):
        ball = latest[ball_id]
        yield _ball(ball, numbers[innings_number(ball.scoreboard)], names)


def _ball(ball: payloads.SportMonksBall, innings: int, names: Mapping[int, str]) -> Ball:
    reading = parse_score(ball.score)
    over, number = parse_overs(ball.ball)
    pair = (ball.batsman_one_on_creeze_id, ball.batsman_two_on_creeze_id)
    extras = reading.wides + reading.noballs + reading.byes + reading.leg_byes + reading.penalty
    return Ball(
        id=ball.id,
        innings=innings,
        over=over,
        number=number,
        batting_team_id=str(ball.team_id),
        striker_id=str(ball.batsman_id),
        striker_name=names.get(ball.batsman_id, ""),
        non_striker_id=next(
            (str(each) for each in pair if each not in {None, ball.batsman_id}), None
        ),
        bowler_id=str(ball.bowler_id),
        bowler_name=names.get(ball.bowler_id, ""),
        runs_bat=reading.runs_bat,
        runs_total=reading.runs_bat + extras,
        wides=reading.wides,
        noballs=reading.noballs,
        byes=reading.byes,
        leg_byes=reading.leg_byes,
        penalty=reading.penalty,
        is_boundary_four=reading.is_four,
        is_boundary_six=reading.is_six,
        wicket=_wicket(ball, reading.kind, names),
        updated_at=ball.updated_at or "",
        is_delivery=reading.is_delivery,
    )


def _wicket(
    ball: payloads.SportMonksBall, kind: WicketKind | None, names: Mapping[int, str]
) -> Wicket | None:
    found = resolve_caught_and_bowled(kind, ball.score.name, ball.catchstump_id, ball.bowler_id)
    if found is None:
        return None
    out = ball.batsmanout_id or ball.batsman_id
    helped = (ball.runout_by_id, ball.catchstump_id)
    fielders = tuple(names.get(each, str(each)) for each in helped if each is not None)
    return Wicket(
        str(out),
        names.get(out, ""),
        found,
        fielders if found is not WicketKind.CAUGHT_AND_BOWLED else (),
    )
