"""Renders the rows of a scorecard: totals, extras, batters, bowlers and balls."""

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

# Ids reserved per delivery, for wickets that fall without a ball.
IDS_PER_DELIVERY: Final = 4


def runs_row(
    snapshot: MatchSnapshot, innings: Innings, number: int, scorecard: InningsScorecard
) -> dict[str, Any]:
    match = snapshot.match
    return {
        "resource": "runs",
        "id": match.id * 10 + number,
        "fixture_id": match.id,
        "team_id": match.team_id(innings.team),
        "inning": number,
        "score": scorecard.runs,
        "wickets": scorecard.wickets,
        "overs": overs(scorecard.overs, scorecard.balls),
        "pp1": None,
        "pp2": None,
        "pp3": None,
        "updated_at": snapshot.updated_at,
    }


def scoreboard_rows(
    match: Match, innings: Innings, number: int, scorecard: InningsScorecard
) -> Iterator[dict[str, Any]]:
    extras = scorecard.extras
    parts = {
        "wide": extras.wides,
        "noball_runs": extras.noballs,
        "noball_balls": scorecard.noball_count,
        "bye": extras.byes,
        "leg_bye": extras.leg_byes,
        "penalty": extras.penalty,
    }
    common = {
        "resource": "scoreboards",
        "fixture_id": match.id,
        "team_id": match.team_id(innings.team),
    }
    name = {"scoreboard": f"S{number}"}
    yield common | {"type": "extra"} | name | parts | {"total": 0, "overs": 0, "wickets": 0}
    whole = {
        "total": scorecard.runs,
        "overs": overs(scorecard.overs, scorecard.balls),
        "wickets": scorecard.wickets,
    }
    yield common | {"type": "total"} | name | dict.fromkeys(parts, 0) | whole


def batting_rows(
    snapshot: MatchSnapshot, innings: Innings, number: int, scorecard: InningsScorecard
) -> Iterator[dict[str, Any]]:
    match = snapshot.match
    is_current = number == innings_numbers(match)[len(snapshot.played) - 1] and not snapshot.is_over
    for entry in scorecard.batting.values():
        result = dismissal_result(dismissal_name(entry.wicket))
        yield {
            "resource": "battings",
            "id": (match.id * 10 + number) * 100 + entry.sort,
            "sort": entry.sort,
            "fixture_id": match.id,
            "team_id": match.team_id(innings.team),
            "active": is_current and entry.name in scorecard.at_crease,
            "scoreboard": f"S{number}",
            "player_id": match.player_id(entry.name),
            "ball": entry.balls,
            "score_id": result["id"],
            "score": entry.runs,
            "four_x": entry.fours,
            "six_x": entry.sixes,
            **_fielders(match, entry.wicket, entry.bowler),
            "batsmanout_id": None,
            "bowling_player_id": match.player_id(entry.bowler) if entry.bowler else None,
            "fow_score": entry.fall_score if entry.wicket else 0,
            "fow_balls": float(entry.fall_ball) if entry.wicket else 0,
            "rate": _strike_rate(entry),
            "updated_at": snapshot.updated_at,
            "batsman": render_player(match.player_id(entry.name), entry.name),
            "bowler": render_player(match.player_id(entry.bowler), entry.bowler)
            if entry.bowler
            else None,
            "result": result,
        }


def _fielders(match: Match, wicket: Dismissal | None, bowler: str) -> dict[str, int | None]:
    """The fielders of a dismissal; the bowler takes a caught-and-bowled catch."""
    ids = [match.player_id(name) for name in wicket.fielders] if wicket is not None else []
    if wicket is not None and wicket.kind == "caught and bowled":
        ids = [match.player_id(bowler)]
    if wicket is not None and wicket.kind == "run out":
        return {
            "catch_stump_player_id": ids[1] if len(ids) > 1 else None,
            "runout_by_id": ids[0] if ids else None,
        }
    return {"catch_stump_player_id": ids[0] if ids else None, "runout_by_id": None}


def _strike_rate(entry: BattingEntry) -> int:
    return round(100 * entry.runs / entry.balls) if entry.balls else 0


def bowling_rows(
    snapshot: MatchSnapshot, innings: Innings, number: int, scorecard: InningsScorecard
) -> Iterator[dict[str, Any]]:
    match = snapshot.match
    is_current = number == innings_numbers(match)[len(snapshot.played) - 1] and not snapshot.is_over
    for entry in scorecard.bowling.values():
        whole, balls = (
            entry.overs + entry.balls // match.balls_per_over,
            entry.balls % match.balls_per_over,
        )
        yield {
            "resource": "bowlings",
            "id": (match.id * 10 + number) * 100 + 50 + entry.sort,
            "sort": entry.sort,
            "fixture_id": match.id,
            "team_id": match.team_id(match.opponent(innings.team)),
            "active": is_current and entry.name == scorecard.bowler,
            "scoreboard": f"S{number}",
            "player_id": match.player_id(entry.name),
            "overs": overs(whole, balls),
            "medians": entry.maidens,
            "runs": entry.runs,
            "wickets": entry.wickets,
            "wide": entry.wides,
            "noball": entry.noballs,
            "rate": _economy(entry, match.balls_per_over),
            "updated_at": snapshot.updated_at,
            "bowler": render_player(match.player_id(entry.name), entry.name),
        }


def _economy(entry: BowlingEntry, balls_per_over: int) -> float:
    bowled = entry.overs * balls_per_over + entry.balls
    return round(entry.runs * balls_per_over / bowled, 2) if bowled else 0.0


def ball_rows(
    snapshot: MatchSnapshot, numbers: Sequence[int], scorecards: Sequence[InningsScorecard]
) -> Iterator[dict[str, Any]]:
    match, index = snapshot.match, 0
    for innings_index, deliveries in enumerate(snapshot.played):
        common = {
            "fixture_id": match.id,
            "team_id": match.team_id(match.innings[innings_index].team),
            "scoreboard": f"S{numbers[innings_index]}",
        }
        for delivery, number in zip(deliveries, scorecards[innings_index].numbers, strict=True):
            if index not in snapshot.withheld:
                rows = [common | row for row in _ball_rows(snapshot, delivery, number, index)]
                yield from rows * 2 if index in snapshot.duplicated else rows
            index += 1


def _ball_rows(
    snapshot: MatchSnapshot, delivery: Delivery, number: int, index: int
) -> Iterator[dict[str, Any]]:
    """The row of a delivery, and one row for each further dismissal."""
    match = snapshot.match
    first_id = match.id * 10_000 + index * IDS_PER_DELIVERY
    scores = [ball_score(delivery), *(dismissal_score(wicket) for wicket in delivery.wickets[1:])]
    wickets: list[Dismissal | None] = [*delivery.wickets] or [None]
    striker = match.player_id(delivery.batter)
    for offset, (score, wicket) in enumerate(zip(scores, wickets, strict=True)):
        fielders = _fielders(match, wicket, delivery.bowler)
        yield {
            "resource": "balls",
            "id": first_id + min(offset, IDS_PER_DELIVERY - 1),
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
            "updated_at": snapshot.updated_at
            if index in snapshot.corrected
            else snapshot.starting_at,
            "batsman": render_player(striker, delivery.batter),
            "bowler": render_player(match.player_id(delivery.bowler), delivery.bowler),
            "batsmanout": render_player(match.player_id(wicket.player_out), wicket.player_out)
            if wicket
            else None,
            "score": score,
        }


def overs(whole: int, balls: int) -> float | int:
    """Format overs: 20, or 19.4 for 19 overs and 4 balls."""
    return float(f"{whole}.{balls}") if balls else whole
