"""Renders a match at one moment of play as SportMonks would: a fixture with everything that can be included in it.

`fixture_at(moment)` is pure. The API takes out of it what was asked for. Super overs are innings 5 and 6 there (7 and 8 if a
second one is needed), whatever was played before.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from tally.sim.sportmonks.match import Delivery, Innings, Match, Wicket, by_hash
from tally.sim.sportmonks.people import league, player, season, stage, team, venue
from tally.sim.sportmonks.scorebook import Batting, Bowling, Sheet, kept
from tally.sim.sportmonks.scores import dismissal, dismissal_name, score_between, score_of

BALLS_APART: Final = 4  # ids between one delivery and the next, for wickets that fall without a ball


class Moment(msgspec.Struct, frozen=True):
    """How far a match has come: the deliveries of each innings that has begun, and what is known besides."""

    match: Match
    starting_at: str
    status: str
    updated_at: str
    is_tossed: bool = False
    is_over: bool = False
    # As the scorers report them, which need not be what the file says.
    played: tuple[tuple[Delivery, ...], ...] = ()
    closed: int = 0
    # Deliveries, counted through the match, that are in the scores but not among the balls yet, or are there twice.
    withheld: frozenset[int] = frozenset()
    doubled: frozenset[int] = frozenset()
    corrected: frozenset[int] = frozenset()


def fixture_at(moment: Moment) -> dict[str, Any]:
    """The whole fixture, with every relation under its name."""
    match = moment.match
    sheets = [
        kept(match, match.innings[index], deliveries, index < moment.closed) for index, deliveries in enumerate(moment.played)
    ]
    numbers = innings_numbers(match)
    fixture = _basics(moment)
    told = list(zip(match.innings, numbers, sheets, strict=False))
    fixture["runs"] = [_runs(moment, innings, number, sheet) for innings, number, sheet in told]
    fixture["scoreboards"] = [row for innings, number, sheet in told for row in _scoreboards(match, innings, number, sheet)]
    fixture["batting"] = [row for innings, number, sheet in told for row in _batting(moment, innings, number, sheet)]
    fixture["bowling"] = [row for innings, number, sheet in told for row in _bowling(moment, innings, number, sheet)]
    fixture["balls"] = list(_balls(moment, numbers, sheets))
    return fixture


def innings_numbers(match: Match) -> list[int]:
    """SportMonks' number of each innings."""
    numbers, plain, extra = [], 0, 4
    for innings in match.innings:
        plain, extra = (plain, extra + 1) if innings.is_super_over else (plain + 1, extra)
        numbers.append(extra if innings.is_super_over else plain)
    return numbers


def _basics(moment: Moment) -> dict[str, Any]:
    match, outcome = moment.match, moment.match.outcome
    home, away = match.teams
    won = match.team_id(outcome.victor) if moment.is_over and outcome.victor else None
    drawn = {"draw": "draw", "no result": "noresult"}.get(outcome.result) if moment.is_over else None
    best = match.player_of_match if moment.is_over else ""
    best_player = player(match.player_id(best), best) if best else None
    tossed = match.team_id(match.toss_winner) if moment.is_tossed and match.toss_winner else None
    target = _target(moment)
    return {
        "resource": "fixtures",
        "id": match.id,
        "league_id": match.league_id,
        "season_id": match.season_id,
        "stage_id": by_hash(f"stage {match.season_id}"),
        "round": match.round,
        "localteam_id": match.team_id(home),
        "visitorteam_id": match.team_id(away),
        "starting_at": moment.starting_at,
        "type": match.kind,
        "live": True,
        "status": moment.status,
        "last_period": None,
        "note": outcome.note if moment.is_over else "",
        "venue_id": by_hash(f"venue {match.venue}"),
        "toss_won_team_id": tossed,
        "winner_team_id": won,
        "draw_noresult": drawn,
        "first_umpire_id": None,
        "second_umpire_id": None,
        "tv_umpire_id": None,
        "referee_id": None,
        "man_of_match_id": best_player and best_player["id"],
        "man_of_series_id": None,
        "total_overs_played": match.overs,
        "elected": ("batting" if match.toss_bats else "bowling") if tossed else None,
        "super_over": any(innings.is_super_over for innings in match.innings[: len(moment.played)]),
        "follow_on": _followed_on(match, len(moment.played)),
        "localteam_dl_data": _reckoned(moment, home, target),
        "visitorteam_dl_data": _reckoned(moment, away, target),
        "rpc_overs": target and target[1],
        "rpc_target": target and str(target[0]),
        "weather_report": [],
        "localteam": team(match.team_id(home), home, match.kind),
        "visitorteam": team(match.team_id(away), away, match.kind),
        "league": league(match.league_id, match.league, match.season_id),
        "season": season(match.season_id, match.league_id, match.season),
        "stage": stage(by_hash(f"stage {match.season_id}"), match.league_id, match.season_id, match.kind),
        "venue": venue(by_hash(f"venue {match.venue}"), match.venue),
        "tosswon": team(tossed, match.toss_winner, match.kind) if tossed else None,
        "winnerteam": team(won, outcome.victor, match.kind) if won else None,
        "manofmatch": best_player,
        "lineup": list(_lineup(moment)) if moment.is_tossed else [],
    }


def _target(moment: Moment) -> tuple[int, str] | None:
    """Runs and overs that rain has left; for a chase that nothing has changed, SportMonks says nothing."""
    match = moment.match
    for innings in reversed(match.innings[: len(moment.played)]):
        if innings.is_super_over or innings.target_runs is None:
            continue
        overs = innings.target_overs or str(match.overs or "")
        is_revised = match.outcome.method in {"D/L", "DLS", "VJD"} or (bool(overs) and overs != str(match.overs))
        return (innings.target_runs, overs) if is_revised else None
    return None


def _reckoned(moment: Moment, side: str, target: tuple[int, str] | None) -> dict[str, Any]:
    """What the method for rain makes of the side that batted first: one run less than the target, in the overs of the chase."""
    if target is None or side != moment.match.innings[0].team:
        return {"score": None, "overs": None, "wickets_out": None}
    return {"score": target[0] - 1, "overs": target[1], "wickets_out": None}


def _followed_on(match: Match, begun: int) -> bool:
    return begun > 2 and not match.innings[2].is_super_over and match.innings[1].team == match.innings[2].team


def _lineup(moment: Moment) -> Iterator[dict[str, Any]]:
    match = moment.match
    come = {each.comes for innings in moment.played for delivery in innings for each in delivery.replacements}
    for side, names in match.lineups.items():
        listed = match.players.get(side, ()) or names
        for name in names:
            if name in listed or name in come:
                place = {"team_id": match.team_id(side), "captain": False, "wicketkeeper": False, "substitution": name in come}
                yield player(match.player_id(name), name) | {"lineup": place}


def _runs(moment: Moment, innings: Innings, number: int, sheet: Sheet) -> dict[str, Any]:
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


def _scoreboards(match: Match, innings: Innings, number: int, sheet: Sheet) -> Iterator[dict[str, Any]]:
    extras = sheet.extras
    parts = {
        "wide": extras.wides,
        "noball_runs": extras.noballs,
        "noball_balls": sheet.noball_count,
        "bye": extras.byes,
        "leg_bye": extras.leg_byes,
        "penalty": extras.penalty,
    }
    about = {"resource": "scoreboards", "fixture_id": match.id, "team_id": match.team_id(innings.team)}
    name = {"scoreboard": f"S{number}"}
    yield about | {"type": "extra"} | name | parts | {"total": 0, "overs": 0, "wickets": 0}
    whole = {"total": sheet.runs, "overs": overs(sheet.overs, sheet.balls), "wickets": sheet.wickets}
    yield about | {"type": "total"} | name | dict.fromkeys(parts, 0) | whole


def _batting(moment: Moment, innings: Innings, number: int, sheet: Sheet) -> Iterator[dict[str, Any]]:
    match = moment.match
    is_current = number == innings_numbers(match)[len(moment.played) - 1] and not moment.is_over
    for line in sheet.batting.values():
        result = dismissal(dismissal_name(line.wicket))
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
            "batsman": player(match.player_id(line.name), line.name),
            "bowler": player(match.player_id(line.bowler), line.bowler) if line.bowler else None,
            "result": result,
        }


def _fielders(match: Match, wicket: Wicket | None, bowler: str) -> dict[str, int | None]:
    """Who caught or stumped, and who threw: a catch of the bowler's own is his."""
    ids = [match.player_id(name) for name in wicket.fielders] if wicket is not None else []
    if wicket is not None and wicket.kind == "caught and bowled":
        ids = [match.player_id(bowler)]
    if wicket is not None and wicket.kind == "run out":
        return {"catch_stump_player_id": ids[1] if len(ids) > 1 else None, "runout_by_id": ids[0] if ids else None}
    return {"catch_stump_player_id": ids[0] if ids else None, "runout_by_id": None}


def _rate(line: Batting) -> int:
    return round(100 * line.runs / line.balls) if line.balls else 0


def _bowling(moment: Moment, innings: Innings, number: int, sheet: Sheet) -> Iterator[dict[str, Any]]:
    match = moment.match
    is_current = number == innings_numbers(match)[len(moment.played) - 1] and not moment.is_over
    for line in sheet.bowling.values():
        whole, balls = line.overs + line.balls // match.balls_per_over, line.balls % match.balls_per_over
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
            "bowler": player(match.player_id(line.name), line.name),
        }


def _economy(line: Bowling, balls_per_over: int) -> float:
    bowled = line.overs * balls_per_over + line.balls
    return round(line.runs * balls_per_over / bowled, 2) if bowled else 0.0


def _balls(moment: Moment, numbers: Sequence[int], sheets: Sequence[Sheet]) -> Iterator[dict[str, Any]]:
    match, place = moment.match, 0
    for index, deliveries in enumerate(moment.played):
        about = {"fixture_id": match.id, "team_id": match.team_id(match.innings[index].team), "scoreboard": f"S{numbers[index]}"}
        for delivery, number in zip(deliveries, sheets[index].numbers, strict=True):
            if place not in moment.withheld:
                rows = [about | row for row in _ball(moment, delivery, number, place)]
                yield from rows * 2 if place in moment.doubled else rows
            place += 1


def _ball(moment: Moment, delivery: Delivery, number: int, place: int) -> Iterator[dict[str, Any]]:
    """The row of a delivery, and one for each further wicket that fell with it."""
    match = moment.match
    first_id = match.id * 10_000 + place * BALLS_APART
    scores = [score_of(delivery), *(score_between(wicket) for wicket in delivery.wickets[1:])]
    wickets: list[Wicket | None] = [*delivery.wickets] or [None]
    striker = match.player_id(delivery.batter)
    for offset, (score, wicket) in enumerate(zip(scores, wickets, strict=True)):
        fielders = _fielders(match, wicket, delivery.bowler)
        yield {
            "resource": "balls",
            "id": first_id + min(offset, BALLS_APART - 1),
            "ball": overs(delivery.over, number),
            "batsman_one_on_creeze_id": striker,
            "batsman_two_on_creeze_id": match.player_id(delivery.non_striker) if delivery.non_striker else None,
            "batsman_id": striker,
            "bowler_id": match.player_id(delivery.bowler),
            "batsmanout_id": match.player_id(wicket.player_out) if wicket else None,
            "catchstump_id": fielders["catch_stump_player_id"],
            "runout_by_id": fielders["runout_by_id"],
            "score_id": score["id"],
            "updated_at": moment.updated_at if place in moment.corrected else moment.starting_at,
            "batsman": player(striker, delivery.batter),
            "bowler": player(match.player_id(delivery.bowler), delivery.bowler),
            "batsmanout": player(match.player_id(wicket.player_out), wicket.player_out) if wicket else None,
            "score": score,
        }


def overs(whole: int, balls: int) -> float | int:
    """Overs as SportMonks writes them: 20, or 19.4 for nineteen overs and four balls."""
    return float(f"{whole}.{balls}") if balls else whole
