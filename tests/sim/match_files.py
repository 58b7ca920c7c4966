"""Builds match files in Cricsheet's format, and Hypothesis strategies for them."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from tally.sim.sportmonks.cricsheet import read_match
from tally.sim.sportmonks.match import Match

HOME, AWAY = "Rovers", "Wanderers"
PEOPLE = [f"{letter} Player" for letter in "ABCDEFGHIJKLMNOPQRSTUVWX"]


def delivery(
    runs: int = 0, batter: str = "A Player", bowler: str = "X Player", **more: Any
) -> dict[str, Any]:
    extras = sum(more.get("extras", {}).values())
    return {
        "batter": batter,
        "bowler": bowler,
        "non_striker": more.pop("non_striker", "B Player"),
        "runs": {"batter": runs, "extras": extras, "total": runs + extras},
        **more,
    }


def innings(team: str, *overs: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "team": team,
        "overs": [{"over": number, "deliveries": balls} for number, balls in enumerate(overs)],
        **more,
    }


def match_document(*played: dict[str, Any], **info: Any) -> dict[str, Any]:
    defaults = {"teams": [HOME, AWAY], "match_type": "T20", "overs": 20, "dates": ["2026-01-01"]}
    return {"meta": {"data_version": "1.1.0"}, "info": defaults | info, "innings": list(played)}


def build_match(*played: dict[str, Any], **info: Any) -> Match:
    return read_match(msgspec.json.encode(match_document(*played, **info)), "77")


KINDS = (
    "bowled",
    "caught",
    "caught and bowled",
    "lbw",
    "stumped",
    "hit wicket",
    "run out",
    "obstructing the field",
    "timed out",
    "retired hurt",
    "retired out",
    "retired not out",
    "handled the ball",
    "hit the ball twice",
    "something new",
)
names = st.sampled_from(PEOPLE)
counts = st.integers(0, 6)
extras = st.dictionaries(
    st.sampled_from(["wides", "noballs", "byes", "legbyes", "penalty"]),
    st.integers(1, 5),
    max_size=2,
)
wickets = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(KINDS), "player_out": names},
        optional={"fielders": st.lists(st.fixed_dictionaries({"name": names}))},
    ),
    max_size=2,
)


@st.composite
def deliveries(draw: st.DrawFn) -> dict[str, Any]:
    runs, more = draw(counts), draw(extras)
    result: dict[str, Any] = {
        "batter": draw(names),
        "bowler": draw(names),
        "runs": {"batter": runs, "extras": sum(more.values()), "total": runs + sum(more.values())},
    }
    if draw(st.booleans()):
        result["non_striker"] = draw(names)
    if more:
        result["extras"] = more
    if draw(st.integers(0, 5)) == 0:
        result["wickets"] = draw(wickets)
    if draw(st.integers(0, 9)) == 0:
        result["runs"]["non_boundary"] = True
    return result


overs = st.lists(deliveries(), min_size=0, max_size=9)
all_innings = st.fixed_dictionaries(
    {"team": st.sampled_from([HOME, AWAY])},
    optional={
        "overs": st.lists(overs, max_size=4).map(
            lambda result: [
                {"over": number, "deliveries": balls} for number, balls in enumerate(result)
            ]
        ),
        "super_over": st.booleans(),
        "declared": st.just(True),
        "forfeited": st.just(True),
        "penalty_runs": st.fixed_dictionaries({}, optional={"pre": counts, "post": counts}),
        "target": st.fixed_dictionaries(
            {}, optional={"runs": st.integers(1, 300), "overs": st.sampled_from([20, 17.3, "12"])}
        ),
        "absent_hurt": st.lists(names, max_size=2),
        "powerplays": st.just([{"from": 0.1, "to": 5.6, "type": "mandatory"}]),
        "miscounted_overs": st.just({"3": {"balls": 5, "umpire": "Z"}}),
    },
)
outcomes = st.sampled_from(
    [
        {},
        {"winner": HOME, "by": {"runs": 3}},
        {"winner": AWAY, "by": {"wickets": 1}, "method": "D/L"},
        {"winner": AWAY, "by": {"innings": 1, "runs": 12}},
        {"winner": HOME, "method": "Awarded"},
        {"result": "tie", "eliminator": AWAY},
        {"result": "tie", "bowl_out": HOME},
        {"result": "draw"},
        {"result": "no result"},
    ]
)
documents = st.builds(
    lambda played, outcome, kind, balls: match_document(
        *played, outcome=outcome, match_type=kind, balls_per_over=balls
    ),
    st.lists(all_innings, max_size=6),
    outcomes,
    st.sampled_from(["T20", "ODI", "Test", "MDM", "IT20", "ODM", "Other"]),
    st.sampled_from([5, 6, 8]),
)
