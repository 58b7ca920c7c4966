"""Renders a match at one moment of play as SportMonks would: a fixture with everything that can be included in it.

`render_fixture(moment)` is pure. The API takes out of it what was asked for. Super overs are innings 5
and 6 there (7 and 8 if a second one is needed), whatever was played before.
"""

from collections.abc import Iterator
from typing import Any, Final

from tally.sim.sportmonks.match import Match, derived_id
from tally.sim.sportmonks.resources import (
    render_league,
    render_player,
    render_season,
    render_stage,
    render_team,
    render_venue,
)
from tally.sim.sportmonks.scorecard import score_innings
from tally.sim.sportmonks.scorecard_rows import (
    ball_rows,
    batting_rows,
    bowling_rows,
    runs_row,
    scoreboard_rows,
)
from tally.sim.sportmonks.timeline import MatchSnapshot, innings_numbers

USUAL_OVERS: Final = {"T20": 20, "T20I": 20, "ODI": 50, "List A": 50}


def render_fixture(moment: MatchSnapshot) -> dict[str, Any]:
    """The whole fixture, with every relation under its name."""
    match = moment.match
    sheets = [
        score_innings(match, match.innings[index], deliveries, index < moment.closed)
        for index, deliveries in enumerate(moment.played)
    ]
    numbers = innings_numbers(match)
    fixture = _basics(moment)
    fixture |= _relations(moment, fixture)
    told = list(zip(match.innings, numbers, sheets, strict=False))
    fixture["runs"] = [runs_row(moment, innings, number, sheet) for innings, number, sheet in told]
    fixture["scoreboards"] = [
        row
        for innings, number, sheet in told
        for row in scoreboard_rows(match, innings, number, sheet)
    ]
    fixture["batting"] = [
        row
        for innings, number, sheet in told
        for row in batting_rows(moment, innings, number, sheet)
    ]
    fixture["bowling"] = [
        row
        for innings, number, sheet in told
        for row in bowling_rows(moment, innings, number, sheet)
    ]
    fixture["balls"] = list(ball_rows(moment, numbers, sheets))
    return fixture


def _basics(moment: MatchSnapshot) -> dict[str, Any]:
    """The fixture's own fields."""
    match, outcome = moment.match, moment.match.outcome
    home, away = (match.team_id(side) for side in match.teams)
    tossed = match.team_id(match.toss_winner) if moment.is_tossed and match.toss_winner else None
    best = match.player_of_match if moment.is_over else ""
    target = _target(moment)
    nobody = dict.fromkeys(
        ("first_umpire_id", "second_umpire_id", "tv_umpire_id", "referee_id", "man_of_series_id")
    )
    return {
        "resource": "fixtures",
        "id": match.id,
        "league_id": match.league_id,
        "season_id": match.season_id,
        "stage_id": derived_id(f"stage {match.season_id}"),
        "round": match.round,
        "localteam_id": home,
        "visitorteam_id": away,
        "starting_at": moment.starting_at,
        "type": match.kind,
        "live": True,
        "status": moment.status,
        "last_period": None,
        "note": outcome.note if moment.is_over else "",
        "venue_id": derived_id(f"venue {match.venue}"),
        "toss_won_team_id": tossed,
        "elected": ("batting" if match.toss_bats else "bowling") if tossed else None,
        "winner_team_id": match.team_id(outcome.victor)
        if moment.is_over and outcome.victor
        else None,
        "draw_noresult": {"draw": "draw", "no result": "noresult"}.get(outcome.result)
        if moment.is_over
        else None,
        "man_of_match_id": match.player_id(best) if best else None,
        **nobody,
        "total_overs_played": match.overs,
        "super_over": any(innings.is_super_over for innings in match.innings[: len(moment.played)]),
        "follow_on": _followed_on(match, len(moment.played)),
        "localteam_dl_data": _reckoned(moment, match.teams[0], target),
        "visitorteam_dl_data": _reckoned(moment, match.teams[1], target),
        "rpc_overs": target[1] if target else _shortened(match),
        "rpc_target": str(target[0]) if target else None,
        "weather_report": [],
    }


def _relations(moment: MatchSnapshot, fixture: dict[str, Any]) -> dict[str, Any]:
    """What the ids of a fixture stand for."""
    match = moment.match
    home, away = (render_team(match.team_id(side), side, match.kind) for side in match.teams)
    sides = {home["id"]: home, away["id"]: away, None: None}
    best = fixture["man_of_match_id"]
    return {
        "localteam": home,
        "visitorteam": away,
        "league": render_league(match.league_id, match.league, match.season_id),
        "season": render_season(match.season_id, match.league_id, match.season),
        "stage": render_stage(fixture["stage_id"], match.league_id, match.season_id, match.kind),
        "venue": render_venue(fixture["venue_id"], match.venue),
        "tosswon": sides[fixture["toss_won_team_id"]],
        "winnerteam": sides[fixture["winner_team_id"]],
        "manofmatch": render_player(best, match.player_of_match) if best else None,
        "lineup": list(_lineup(moment)) if moment.is_tossed else [],
    }


def _target(moment: MatchSnapshot) -> tuple[int, str] | None:
    """Runs and overs that rain has left; of a chase that nothing has changed, SportMonks says nothing."""
    match = moment.match
    for innings in reversed(match.innings[: len(moment.played)]):
        if innings.is_super_over or innings.target_runs is None:
            continue
        overs = innings.target_overs or str(match.overs or "")
        is_revised = match.outcome.method in {"D/L", "DLS", "VJD"} or overs != str(
            match.overs or ""
        )
        return (innings.target_runs, overs) if is_revised else None
    return None


def _shortened(match: Match) -> str | None:
    """The overs of a match that was shortened before it began."""
    usual = USUAL_OVERS.get(match.kind)
    return None if usual is None or match.overs in {None, usual} else str(match.overs)


def _reckoned(moment: MatchSnapshot, side: str, target: tuple[int, str] | None) -> dict[str, Any]:
    """What the method for rain makes of the side that batted first: one run less than the target, in the overs of the chase."""
    if target is None or side != moment.match.innings[0].team:
        return {"score": None, "overs": None, "wickets_out": None}
    return {"score": target[0] - 1, "overs": target[1], "wickets_out": None}


def _followed_on(match: Match, begun: int) -> bool:
    return (
        begun > 2
        and not match.innings[2].is_super_over
        and match.innings[1].team == match.innings[2].team
    )


def _lineup(moment: MatchSnapshot) -> Iterator[dict[str, Any]]:
    match = moment.match
    come = {
        each.comes
        for innings in moment.played
        for delivery in innings
        for each in delivery.replacements
    }
    for side, names in match.lineups.items():
        listed = match.players.get(side, ()) or names
        for name in names:
            if name in listed or name in come:
                place = {
                    "team_id": match.team_id(side),
                    "captain": False,
                    "wicketkeeper": False,
                    "substitution": name in come,
                }
                yield render_player(match.player_id(name), name) | {"lineup": place}
