"""SportMonks' scores: the name and the runs of a ball or a dismissal.

A name has parts joined with " + ": `FOUR`, `1 Bye + Run Out`, `1 No Ball + 4 Runs`, `1 Wide + Stump
Out`. `runs` are the runs conceded by the bowler; byes and leg byes have their own fields; penalty
runs are only in the name.
"""

import zlib
from functools import lru_cache
from typing import Any, Final

from tally.sim.sportmonks.match import Delivery, Dismissal

# Ids that SportMonks documents.
KNOWN_IDS: Final = {
    "1 Bye": 1,
    "1 Bye + Retired Hurt": 2,
    "1 Bye + Run Out": 3,
    "1 Leg Bye": 4,
    "1 Leg Bye + Run Out": 5,
    "1 No Ball": 7,
    "1 Run": 69,
}
DISMISSALS: Final = {
    "bowled": "Clean Bowled",
    "caught": "Catch Out",
    "caught and bowled": "Catch Out",
    "lbw": "LBW OUT",
    "stumped": "Stump Out",
    "hit wicket": "Hit Wicket",
    "run out": "Run Out",
    "obstructing the field": "Obstructing the field Out",
    "handled the ball": "Handled the ball Out",
    "hit the ball twice": "Hit the ball twice Out",
    "timed out": "Timed Out",
    "retired out": "Retired Out",
    "retired hurt": "Retired Hurt",
    "retired not out": "Retired Not Out",
}
NOT_OUT: Final = "Not Out"


def dismissal_name(wicket: Dismissal | None) -> str:
    if wicket is None:
        return NOT_OUT
    if wicket.kind == "caught" and not wicket.fielders:
        # An unnamed fielder; without "(Sub)" the catch would count as the bowler's.
        return "Catch Out (Sub)"
    return DISMISSALS.get(wicket.kind, "Out")


@lru_cache(65_536)
def ball_score(delivery: Delivery) -> dict[str, Any]:
    """The score of a ball, including its first dismissal."""
    extras = delivery.extras
    wicket = delivery.wickets[0] if delivery.wickets else None
    return _score(
        _name(delivery, wicket),
        runs=delivery.runs_bat + extras.wides + extras.noballs,
        four=delivery.is_four,
        six=delivery.is_six,
        bye=extras.byes,
        leg_bye=extras.leg_byes,
        noball=extras.noballs,
        noball_runs=delivery.runs_bat if extras.noballs else 0,
        is_wicket=wicket is not None and wicket.is_wicket,
        ball=delivery.is_legal,
    )


def dismissal_score(wicket: Dismissal) -> dict[str, Any]:
    """The score of a dismissal without a ball: timed out, or retired with another dismissal."""
    return _score(dismissal_name(wicket), is_wicket=wicket.is_wicket, ball=False)


@lru_cache
def dismissal_result(name: str) -> dict[str, Any]:
    return _score(name, is_wicket=name not in {NOT_OUT, "Retired Hurt", "Retired Not Out"})


def _name(delivery: Delivery, wicket: Dismissal | None) -> str:
    extras = delivery.extras
    parts = []
    if extras.wides:
        parts.append(_plural(extras.wides, "Wide"))
    if extras.noballs:
        parts.append(_plural(extras.noballs, "No Ball"))
    if delivery.runs_bat:
        parts.append(
            "FOUR"
            if delivery.is_four
            else "SIX"
            if delivery.is_six
            else _plural(delivery.runs_bat, "Run")
        )
    if extras.byes:
        parts.append(_plural(extras.byes, "Bye"))
    if extras.leg_byes:
        parts.append(_plural(extras.leg_byes, "Leg Bye"))
    if extras.penalty:
        parts.append(_plural(extras.penalty, "Penalty Run"))
    if wicket is not None:
        parts.append(dismissal_name(wicket))
    return " + ".join(parts) or "No Run"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _score(name: str, **fields: Any) -> dict[str, Any]:
    defaults = {
        "runs": 0,
        "four": False,
        "six": False,
        "bye": 0,
        "leg_bye": 0,
        "noball": 0,
        "noball_runs": 0,
    }
    identity = {
        "resource": "scores",
        "id": KNOWN_IDS.get(name) or 1000 + zlib.crc32(name.encode()) % 1_000_000,
        "name": name,
    }
    score = identity | defaults | {"is_wicket": False, "ball": True} | fields
    return score | {"out": score["is_wicket"]}
