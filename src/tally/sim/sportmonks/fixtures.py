"""Renders a match at one moment as a SportMonks fixture with all relations.

`render_fixture(snapshot)` is pure; the API removes relations that were not requested. Super overs
are innings 5 and 6, a second super over 7 and 8.
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

STANDARD_OVERS: Final = {"T20": 20, "T20I": 20, "ODI": 50, "List A": 50}


def render_fixture(snapshot: MatchSnapshot) -> dict[str, Any]:
    """The fixture with every relation."""
    match = snapshot.match
    scorecards = [
        score_innings(match, match.innings[index], deliveries, index < snapshot.closed)
        for index, deliveries in enumerate(snapshot.played)
    ]
    numbers = innings_numbers(match)
    fixture = _fixture_fields(snapshot)
    fixture |= _relations(snapshot, fixture)
    entries = list(zip(match.innings, numbers, scorecards, strict=False))
    fixture["runs"] = [
        runs_row(snapshot, innings, number, scorecard) for innings, number, scorecard in entries
    ]
    fixture["scoreboards"] = [
        row
        for innings, number, scorecard in entries
        for row in scoreboard_rows(match, innings, number, scorecard)
    ]
    fixture["batting"] = [
        row
        for innings, number, scorecard in entries
        for row in batting_rows(snapshot, innings, number, scorecard)
    ]
    fixture["bowling"] = [
        row
        for innings, number, scorecard in entries
        for row in bowling_rows(snapshot, innings, number, scorecard)
    ]
    fixture["balls"] = list(ball_rows(snapshot, numbers, scorecards))
    return fixture


def _fixture_fields(snapshot: MatchSnapshot) -> dict[str, Any]:
    """The fields of the fixture itself."""
    match, outcome = snapshot.match, snapshot.match.outcome
    home, away = (match.team_id(side) for side in match.teams)
    toss_winner_id = (
        match.team_id(match.toss_winner) if snapshot.is_tossed and match.toss_winner else None
    )
    player_of_match = match.player_of_match if snapshot.is_over else ""
    target = _target(snapshot)
    officials = dict.fromkeys(
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
        "starting_at": snapshot.starting_at,
        "type": match.kind,
        "live": True,
        "status": snapshot.status,
        "last_period": None,
        "note": outcome.note if snapshot.is_over else "",
        "venue_id": derived_id(f"venue {match.venue}"),
        "toss_won_team_id": toss_winner_id,
        "elected": ("batting" if match.toss_bats else "bowling") if toss_winner_id else None,
        "winner_team_id": match.team_id(outcome.winning_team)
        if snapshot.is_over and outcome.winning_team
        else None,
        "draw_noresult": {"draw": "draw", "no result": "noresult"}.get(outcome.result)
        if snapshot.is_over
        else None,
        "man_of_match_id": match.player_id(player_of_match) if player_of_match else None,
        **officials,
        "total_overs_played": match.overs,
        "super_over": any(
            innings.is_super_over for innings in match.innings[: len(snapshot.played)]
        ),
        "follow_on": _followed_on(match, len(snapshot.played)),
        "localteam_dl_data": _revised_score(snapshot, match.teams[0], target),
        "visitorteam_dl_data": _revised_score(snapshot, match.teams[1], target),
        "rpc_overs": target[1] if target else _shortened(match),
        "rpc_target": str(target[0]) if target else None,
        "weather_report": [],
    }


def _relations(snapshot: MatchSnapshot, fixture: dict[str, Any]) -> dict[str, Any]:
    """The resources that the ids of a fixture refer to."""
    match = snapshot.match
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
        "lineup": list(_lineup(snapshot)) if snapshot.is_tossed else [],
    }


def _target(snapshot: MatchSnapshot) -> tuple[int, str] | None:
    """The revised target as runs and overs; None if the target was not revised."""
    match = snapshot.match
    for innings in reversed(match.innings[: len(snapshot.played)]):
        if innings.is_super_over or innings.target_runs is None:
            continue
        overs = innings.target_overs or str(match.overs or "")
        is_revised = match.outcome.method in {"D/L", "DLS", "VJD"} or overs != str(
            match.overs or ""
        )
        return (innings.target_runs, overs) if is_revised else None
    return None


def _shortened(match: Match) -> str | None:
    """The overs of a match that was shortened before its start; None otherwise."""
    standard = STANDARD_OVERS.get(match.kind)
    return None if standard is None or match.overs in {None, standard} else str(match.overs)


def _revised_score(
    snapshot: MatchSnapshot, side: str, target: tuple[int, str] | None
) -> dict[str, Any]:
    """The revised score of the side that batted first: the target minus one run."""
    if target is None or side != snapshot.match.innings[0].team:
        return {"score": None, "overs": None, "wickets_out": None}
    return {"score": target[0] - 1, "overs": target[1], "wickets_out": None}


def _followed_on(match: Match, innings_begun: int) -> bool:
    return (
        innings_begun > 2
        and not match.innings[2].is_super_over
        and match.innings[1].team == match.innings[2].team
    )


def _lineup(snapshot: MatchSnapshot) -> Iterator[dict[str, Any]]:
    match = snapshot.match
    substitutes = {
        replacement.player_in
        for innings in snapshot.played
        for delivery in innings
        for replacement in delivery.replacements
    }
    for side, names in match.lineups.items():
        listed = match.players.get(side, ()) or names
        for name in names:
            if name in listed or name in substitutes:
                entry = {
                    "team_id": match.team_id(side),
                    "captain": False,
                    "wicketkeeper": False,
                    "substitution": name in substitutes,
                }
                yield render_player(match.player_id(name), name) | {"lineup": entry}
