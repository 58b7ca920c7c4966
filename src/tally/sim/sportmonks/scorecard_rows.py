"""The rows of a scorecard as SportMonks has them: totals, extras, batters, bowlers, and every ball."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tally.sim.sportmonks.match import Delivery, Dismissal, Innings, Match
from tally.sim.sportmonks.resources import render_player
from tally.sim.sportmonks.scorecard import BattingEntry, BowlingEntry, InningsScorecard
from tally.sim.sportmonks.scores import (
    ball_score,
    dismissal_name,
    dismissal_result,
    dismissal_score,
)
from tally.sim.sportmonks.timeline import MatchSnapshot, innings_numbers

BALLS_APART: Final = (
    4  # ids between one delivery and the next, for wickets that fall without a ball
)


def runs_row(
    moment: MatchSnapshot, innings: Innings, number: int, sheet: InningsScorecard
) -> dict[str, Any]:
    match = moment.match
    return {
        "resource": "runs",
        "id": match.id * 10 + number,
        "fixture_id": match.id,
        "team_id": match.team_id(innings.team),
        "inning": number,
        "score": sheet.runs,
        "wickets": sheet.wickets,
        "overs": overs(sheet.overs, sheet.balls),
        "pp1": None,
        "pp2": None,
        "pp3": None,
        "updated_at": moment.updated_at,
    }


def scoreboard_rows(
    match: Match, innings: Innings, number: int, sheet: InningsScorecard
) -> Iterator[dict[str, Any]]:
    extras = sheet.extras
    parts = {
        "wide": extras.wides,
        "noball_runs": extras.noballs,
        "noball_balls": sheet.noball_count,
        "bye": extras.byes,
        "leg_bye": extras.leg_byes,
        "penalty": extras.penalty,
    }
    about = {
        "resource": "scoreboards",
        "fixture_id": match.id,
        "team_id": match.team_id(innings.team),
    }
    name = {"scoreboard": f"S{number}"}
    yield about | {"type": "extra"} | name | parts | {"total": 0, "overs": 0, "wickets": 0}
    whole = {
        "total": sheet.runs,
        "overs": overs(sheet.overs, sheet.balls),
        "wickets": sheet.wickets,
    }
    yield about | {"type": "total"} | name | dict.fromkeys(parts, 0) | whole


def batting_rows(
    moment: MatchSnapshot, innings: Innings, number: int, sheet: InningsScorecard
) -> Iterator[dict[str, Any]]:
    match = moment.match
    is_current = number == innings_numbers(match)[len(moment.played) - 1] and not moment.is_over
    for line in sheet.batting.values():
        result = dismissal_result(dismissal_name(line.wicket))
        yield {
            "resource": "battings",
            "id": (match.id * 10 + number) * 100 + line.sort,
            "sort": line.sort,
            "fixture_id": match.id,
            "team_id": match.team_id(innings.team),
            "active": is_current and line.name in sheet.at_crease,
            "scoreboard": f"S{number}",
            "player_id": match.player_id(line.name),
            "ball": line.balls,
            "score_id": result["id"],
            "score": line.runs,
            "four_x": line.fours,
            "six_x": line.sixes,
            **_fielders(match, line.wicket, line.bowler),
            "batsmanout_id": None,
            "bowling_player_id": match.player_id(line.bowler) if line.bowler else None,
            "fow_score": line.fall_score if line.wicket else 0,
            "fow_balls": float(line.fall_ball) if line.wicket else 0,
            "rate": _rate(line),
            "updated_at": moment.updated_at,
            "batsman": render_player(match.player_id(line.name), line.name),
            "bowler": render_player(match.player_id(line.bowler), line.bowler)
            if line.bowler
            else None,
            "result": result,
        }


def _fielders(match: Match, wicket: Dismissal | None, bowler: str) -> dict[str, int | None]:
    """Who caught or stumped, and who threw: a catch of the bowler's own is his."""
    ids = [match.player_id(name) for name in wicket.fielders] if wicket is not None else []
    if wicket is not None and wicket.kind == "caught and bowled":
        ids = [match.player_id(bowler)]
    if wicket is not None and wicket.kind == "run out":
        return {
            "catch_stump_player_id": ids[1] if len(ids) > 1 else None,
            "runout_by_id": ids[0] if ids else None,
        }
    return {"catch_stump_player_id": ids[0] if ids else None, "runout_by_id": None}


def _rate(line: BattingEntry) -> int:
    return round(100 * line.runs / line.balls) if line.balls else 0


def bowling_rows(
    moment: MatchSnapshot, innings: Innings, number: int, sheet: InningsScorecard
) -> Iterator[dict[str, Any]]:
    match = moment.match
    is_current = number == innings_numbers(match)[len(moment.played) - 1] and not moment.is_over
    for line in sheet.bowling.values():
        whole, balls = (
            line.overs + line.balls // match.balls_per_over,
            line.balls % match.balls_per_over,
        )
        yield {
            "resource": "bowlings",
            "id": (match.id * 10 + number) * 100 + 50 + line.sort,
            "sort": line.sort,
            "fixture_id": match.id,
            "team_id": match.team_id(match.other(innings.team)),
            "active": is_current and line.name == sheet.bowler,
            "scoreboard": f"S{number}",
            "player_id": match.player_id(line.name),
            "overs": overs(whole, balls),
            "medians": line.maidens,
            "runs": line.runs,
            "wickets": line.wickets,
            "wide": line.wides,
            "noball": line.noballs,
            "rate": _economy(line, match.balls_per_over),
            "updated_at": moment.updated_at,
            "bowler": render_player(match.player_id(line.name), line.name),
        }


def _economy(line: BowlingEntry, balls_per_over: int) -> float:
    bowled = line.overs * balls_per_over + line.balls
    return round(line.runs * balls_per_over / bowled, 2) if bowled else 0.0


def ball_rows(
    moment: MatchSnapshot, numbers: Sequence[int], sheets: Sequence[InningsScorecard]
) -> Iterator[dict[str, Any]]:
    match, place = moment.match, 0
    for index, deliveries in enumerate(moment.played):
        about = {
            "fixture_id": match.id,
            "team_id": match.team_id(match.innings[index].team),
            "scoreboard": f"S{numbers[index]}",
        }
        for delivery, number in zip(deliveries, sheets[index].numbers, strict=True):
            if place not in moment.withheld:
                rows = [about | row for row in _ball(moment, delivery, number, place)]
                yield from rows * 2 if place in moment.doubled else rows
            place += 1


def _ball(
    moment: MatchSnapshot, delivery: Delivery, number: int, place: int
) -> Iterator[dict[str, Any]]:
    """The row of a delivery, and one for each further wicket that fell with it."""
    match = moment.match
    first_id = match.id * 10_000 + place * BALLS_APART
    scores = [ball_score(delivery), *(dismissal_score(wicket) for wicket in delivery.wickets[1:])]
    wickets: list[Dismissal | None] = [*delivery.wickets] or [None]
    striker = match.player_id(delivery.batter)
    for offset, (score, wicket) in enumerate(zip(scores, wickets, strict=True)):
        fielders = _fielders(match, wicket, delivery.bowler)
        yield {
            "resource": "balls",
            "id": first_id + min(offset, BALLS_APART - 1),
            "ball": overs(delivery.over, number),
            "batsman_one_on_creeze_id": striker,
            "batsman_two_on_creeze_id": match.player_id(delivery.non_striker)
            if delivery.non_striker
            else None,
            "batsman_id": striker,
            "bowler_id": match.player_id(delivery.bowler),
            "batsmanout_id": match.player_id(wicket.player_out) if wicket else None,
            "catchstump_id": fielders["catch_stump_player_id"],
            "runout_by_id": fielders["runout_by_id"],
            "score_id": score["id"],
            "updated_at": moment.updated_at if place in moment.corrected else moment.starting_at,
            "batsman": render_player(striker, delivery.batter),
            "bowler": render_player(match.player_id(delivery.bowler), delivery.bowler),
            "batsmanout": render_player(match.player_id(wicket.player_out), wicket.player_out)
            if wicket
            else None,
            "score": score,
        }


def overs(whole: int, balls: int) -> float | int:
    """Overs as SportMonks writes them: 20, or 19.4 for nineteen overs and four balls."""
    return float(f"{whole}.{balls}") if balls else whole
