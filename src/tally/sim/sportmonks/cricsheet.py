"""Reads match files in Cricsheet's JSON format, in its current and its older layout.

The parser is lenient: missing values get defaults, unknown values are ignored, and only a file
without a match raises `InvalidMatchFile`. In the older layout, an innings is a map with one name
and a delivery a map with one number.
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
    """The file has no cricket match; the message says why."""


def read_match(content: bytes, name: str = "") -> Match:
    """Parse a match file. `name` is the file name without suffix; a number becomes the id."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMatchFile(f"not valid JSON: {error}") from error
    info = _map(_map(document).get("info"))
    teams = [str(team) for team in _list(info.get("teams"))][:2]
    innings = [_innings(entry) for entry in _list(_map(document).get("innings"))]
    for team in (played.team for played in innings):
        if team and team not in teams and len(teams) < 2:
            teams.append(team)
    if len(teams) != 2 or teams[0] == teams[1]:
        raise InvalidMatchFile("it must name two teams")
    return _match(
        info, (teams[0], teams[1]), [played for played in innings if played.team in teams], name
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
    """The number in a file name; 0 if there is none or it is too long for an id."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 11 else 0


def _kind(kind: str, team_type: str) -> str:
    """SportMonks' name for the match type."""
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


def _innings(entry: Any) -> Innings:
    fields = _map(entry)
    if "team" not in fields and len(fields) == 1:
        fields = _map(next(iter(fields.values())))  # the older layout: {"1st innings": {…}}
    penalties = _map(fields.get("penalty_runs"))
    target = _map(fields.get("target"))
    return Innings(
        team=str(fields.get("team") or ""),
        deliveries=tuple(_deliveries(fields)),
        is_super_over=fields.get("super_over") is True,
        is_declared=fields.get("declared") is True,
        is_forfeited=fields.get("forfeited") is True,
        penalty_before=_count(penalties.get("pre")),
        penalty_after=_count(penalties.get("post")),
        target_runs=_count(target.get("runs")) or None,
        target_overs=_overs_text(target.get("overs")),
        absent_hurt=tuple(map(str, _list(fields.get("absent_hurt")))),
    )


def _deliveries(fields: Mapping[str, Any]) -> Iterator[Delivery]:
    for over in map(_map, _list(fields.get("overs"))):
        number = _count(over.get("over"))
        for delivery in _list(over.get("deliveries")):
            yield _delivery(number, _map(delivery))
    for entry in map(_map, _list(fields.get("deliveries"))):
        for label, delivery in entry.items():
            over_text = str(label).partition(".")[0]
            yield _delivery(int(over_text) if over_text.isdigit() else 0, _map(delivery))


def _delivery(over: int, fields: Mapping[str, Any]) -> Delivery:
    runs, extras = _map(fields.get("runs")), _map(fields.get("extras"))
    ball_extras = BallExtras(
        wides=_count(extras.get("wides")),
        noballs=_count(extras.get("noballs")),
        byes=_count(extras.get("byes")),
        leg_byes=_count(extras.get("legbyes")),
        penalty=_count(extras.get("penalty")),
    )
    replaced = _map(fields.get("replacements"))
    return Delivery(
        over=over,
        batter=str(fields.get("batter") or fields.get("batsman") or "Unknown batter"),
        non_striker=str(fields.get("non_striker") or ""),
        bowler=str(fields.get("bowler") or "Unknown bowler"),
        runs_bat=_count(runs.get("batter", runs.get("batsman"))),
        extras=ball_extras,
        is_boundary=runs.get("non_boundary") is not True,
        wickets=tuple(_wickets(fields)),
        replacements=tuple(_replacement(_map(entry)) for entry in _list(replaced.get("match"))),
    )


def _wickets(fields: Mapping[str, Any]) -> Iterator[Dismissal]:
    older = fields.get("wicket")
    for wicket in map(
        _map,
        [
            *_list(fields.get("wickets")),
            *(older if isinstance(older, list) else [older] if older else []),
        ],
    ):
        fielders = (
            fielder.get("name") if isinstance(fielder, Mapping) else fielder
            for fielder in _list(wicket.get("fielders"))
        )
        named = tuple(str(name) for name in fielders if name)
        yield Dismissal(
            str(wicket.get("player_out") or "Unknown batter"),
            str(wicket.get("kind") or "out"),
            named,
        )


def _replacement(fields: Mapping[str, Any]) -> Replacement:
    return Replacement(
        str(fields.get("team") or ""), str(fields.get("in") or ""), str(fields.get("out") or "")
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    """A positive number; 0 for anything else."""
    return int(value) if isinstance(value, (int, float)) and 0 < value < 100_000 else 0


def _overs_text(value: Any) -> str | None:
    """The overs of a target, for example 20, or 17.3 for 17 overs and 3 balls."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    text = str(value)
    return text if text.replace(".", "", 1).isdigit() and text.isascii() else None


BUNDLED_MATCH_ID: Final = 900_001


def bundled_match(match_id: int = BUNDLED_MATCH_ID) -> Match:
    """The match that is part of the package, with this id.

    The Herons bat first in eight overs and win by 11 runs. The match has most kinds of wickets, a
    hat-trick across two overs, a maiden with a bye, a fifty with three consecutive sixes, wides,
    no-balls and a batter who retires hurt.
    """
    content = files("tally.sim.sportmonks").joinpath("matches", "herons-hares.json").read_bytes()
    return read_match(content, str(match_id))
