"""Reads match files in Cricsheet's JSON format, whatever of it a file has: T20s, Tests, super overs, old files.

Tolerant on purpose. What is missing has a sensible value, what is unknown is passed over, and only
what is no match at all is refused, with `InvalidMatchFile`. The older layout, in which an innings is a map
with one name and a delivery a map with one number, is read too.
"""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec

from tally.sim.sportmonks.match import (
    BallExtras,
    Delivery,
    Dismissal,
    Innings,
    Match,
    MatchOutcome,
    Replacement,
    derived_id,
)

DEFAULT_OVERS: Final = {"T20": 20, "IT20": 20, "ODI": 50, "ODM": 50}


class InvalidMatchFile(Exception):
    """These bytes hold no cricket match; the message says what is wrong."""


def read_match(content: bytes, name: str = "") -> Match:
    """The match in a file; `name` is the file's, without its suffix, and becomes the match's id if it is a number."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMatchFile(f"it is not JSON: {error}") from error
    info = _map(_map(document).get("info"))
    teams = [str(team) for team in _list(info.get("teams"))][:2]
    innings = [_innings(each) for each in _list(_map(document).get("innings"))]
    for team in (each.team for each in innings):
        if team and team not in teams and len(teams) < 2:
            teams.append(team)
    if len(teams) != 2 or teams[0] == teams[1]:
        raise InvalidMatchFile("it does not name two teams")
    return _match(
        info, (teams[0], teams[1]), [each for each in innings if each.team in teams], name
    )


def _match(
    info: Mapping[str, Any], teams: tuple[str, str], innings: list[Innings], name: str
) -> Match:
    event = _map(info.get("event"))
    toss = _map(info.get("toss"))
    kind = str(info.get("match_type") or "T20")
    dates = [str(date) for date in _list(info.get("dates")) if date]
    registry = _map(_map(info.get("registry")).get("people"))
    return Match(
        id=_number(name) or derived_id(f"match {name} {teams} {dates}"),
        teams=teams,
        kind=_kind(kind, str(info.get("team_type") or "")),
        overs=_count(info.get("overs")) or DEFAULT_OVERS.get(kind),
        balls_per_over=_count(info.get("balls_per_over")) or 6,
        date=dates[0] if dates else "2000-01-01",
        league=str(event.get("name") or info.get("competition") or f"{kind} friendlies"),
        season=str(info.get("season") or (dates[0][:4] if dates else "2000")),
        round=_round(event),
        venue=str(info.get("venue") or info.get("city") or "Unknown ground"),
        toss_winner=str(toss.get("winner") or "") if toss.get("winner") in teams else "",
        toss_bats=str(toss.get("decision") or "bat") == "bat",
        players={
            team: tuple(map(str, _list(_map(info.get("players")).get(team)))) for team in teams
        },
        people={str(person): str(key) for person, key in registry.items()},
        player_of_match=next(iter(map(str, _list(info.get("player_of_match")))), ""),
        innings=tuple(innings),
        outcome=_outcome(_map(info.get("outcome")), teams),
    )


def _number(name: str) -> int:
    """The number that a file is named after, unless it is too long for an id."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 11 else 0


def _kind(kind: str, team_type: str) -> str:
    """SportMonks' word for the sort of match."""
    if kind in {"T20", "IT20"}:
        return "T20I" if kind == "IT20" or team_type == "international" else "T20"
    return {"MDM": "4day", "ODM": "List A"}.get(kind, kind)


def _round(event: Mapping[str, Any]) -> str:
    if event.get("stage"):
        return str(event["stage"])
    number = event.get("match_number")
    return "" if number is None else f"Match {number}"


def _outcome(outcome: Mapping[str, Any], teams: tuple[str, str]) -> MatchOutcome:
    by = _map(outcome.get("by"))

    def team(name: str) -> str:
        return str(outcome[name]) if outcome.get(name) in teams else ""

    return MatchOutcome(
        winner=team("winner"),
        runs=_count(by.get("runs")),
        wickets=_count(by.get("wickets")),
        innings=_count(by.get("innings")),
        result=str(outcome.get("result") or ""),
        method=str(outcome.get("method") or ""),
        eliminator=team("eliminator"),
        bowl_out=team("bowl_out"),
    )


def _innings(each: Any) -> Innings:
    told = _map(each)
    if "team" not in told and len(told) == 1:
        told = _map(next(iter(told.values())))  # the older layout: {"1st innings": {…}}
    penalties = _map(told.get("penalty_runs"))
    target = _map(told.get("target"))
    return Innings(
        team=str(told.get("team") or ""),
        deliveries=tuple(_deliveries(told)),
        is_super_over=told.get("super_over") is True,
        is_declared=told.get("declared") is True,
        is_forfeited=told.get("forfeited") is True,
        penalty_before=_count(penalties.get("pre")),
        penalty_after=_count(penalties.get("post")),
        target_runs=_count(target.get("runs")) or None,
        target_overs=_overs_text(target.get("overs")),
        absent_hurt=tuple(map(str, _list(told.get("absent_hurt")))),
    )


def _deliveries(told: Mapping[str, Any]) -> Iterator[Delivery]:
    for over in map(_map, _list(told.get("overs"))):
        number = _count(over.get("over"))
        for delivery in _list(over.get("deliveries")):
            yield _delivery(number, _map(delivery))
    for each in map(_map, _list(told.get("deliveries"))):
        for label, delivery in each.items():
            over_text = str(label).partition(".")[0]
            yield _delivery(int(over_text) if over_text.isdigit() else 0, _map(delivery))


def _delivery(over: int, told: Mapping[str, Any]) -> Delivery:
    runs, extras = _map(told.get("runs")), _map(told.get("extras"))
    made = BallExtras(
        wides=_count(extras.get("wides")),
        noballs=_count(extras.get("noballs")),
        byes=_count(extras.get("byes")),
        leg_byes=_count(extras.get("legbyes")),
        penalty=_count(extras.get("penalty")),
    )
    replaced = _map(told.get("replacements"))
    return Delivery(
        over=over,
        batter=str(told.get("batter") or told.get("batsman") or "Unknown batter"),
        non_striker=str(told.get("non_striker") or ""),
        bowler=str(told.get("bowler") or "Unknown bowler"),
        runs_bat=_count(runs.get("batter", runs.get("batsman"))),
        extras=made,
        is_boundary=runs.get("non_boundary") is not True,
        wickets=tuple(_wickets(told)),
        replacements=tuple(_replacement(_map(each)) for each in _list(replaced.get("match"))),
    )


def _wickets(told: Mapping[str, Any]) -> Iterator[Dismissal]:
    older = told.get("wicket")
    for wicket in map(
        _map,
        [
            *_list(told.get("wickets")),
            *(older if isinstance(older, list) else [older] if older else []),
        ],
    ):
        fielders = (
            each.get("name") if isinstance(each, Mapping) else each
            for each in _list(wicket.get("fielders"))
        )
        named = tuple(str(name) for name in fielders if name)
        yield Dismissal(
            str(wicket.get("player_out") or "Unknown batter"),
            str(wicket.get("kind") or "out"),
            named,
        )


def _replacement(told: Mapping[str, Any]) -> Replacement:
    return Replacement(
        str(told.get("team") or ""), str(told.get("in") or ""), str(told.get("out") or "")
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    """A number that is not negative, and 0 for anything else."""
    return int(value) if isinstance(value, (int, float)) and 0 < value < 100_000 else 0


def _overs_text(value: Any) -> str | None:
    """Overs of a target: a whole number, or 17.3 for seventeen overs and three balls."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    text = str(value)
    return text if text.replace(".", "", 1).isdigit() and text.isascii() else None


BUNDLED_MATCH_ID: Final = 900_001


def bundled_match(match_id: int = BUNDLED_MATCH_ID) -> Match:
    """The match, under this id: with others, it can be played several times at once."""
    content = files("tally.sim.sportmonks").joinpath("matches", "herons-hares.json").read_bytes()
    return read_match(content, str(match_id))
