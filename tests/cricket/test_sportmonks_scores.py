"""Parsing of score names, overs and start times."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.cricket.model.feed import Overs, WicketKind
from tally.cricket.sportmonks.conversions import MalformedFixture, parse_overs, parse_start_time
from tally.cricket.sportmonks.payloads import SportMonksScore
from tally.cricket.sportmonks.score_names import DeliveryScore, parse_score


@pytest.mark.parametrize(
    ("name", "fields", "reading"),
    [
        ("No Run", {}, DeliveryScore()),
        ("1 Run", {"runs": 1}, DeliveryScore(runs_bat=1)),
        ("3 Runs", {"runs": 3}, DeliveryScore(runs_bat=3)),
        ("FOUR", {"runs": 4, "four": True}, DeliveryScore(runs_bat=4, is_four=True)),
        ("4 Runs", {"runs": 4}, DeliveryScore(runs_bat=4)),
        ("SIX", {"runs": 6, "six": True}, DeliveryScore(runs_bat=6, is_six=True)),
        ("1 Bye", {"bye": 1}, DeliveryScore(byes=1)),
        ("4 Byes", {"bye": 4}, DeliveryScore(byes=4)),
        ("2 Leg Bye", {"leg_bye": 2}, DeliveryScore(leg_byes=2)),
        ("1 Leg Bye + 4 Runs", {"runs": 4, "leg_bye": 5}, DeliveryScore(leg_byes=5)),
        ("1 Wide", {"runs": 1, "ball": False}, DeliveryScore(wides=1)),
        ("Wide", {"runs": 1, "ball": False}, DeliveryScore(wides=1)),
        ("5 Wides", {"runs": 5, "ball": False}, DeliveryScore(wides=5)),
        ("1 Wide + 2 Byes", {"runs": 1, "bye": 2, "ball": False}, DeliveryScore(wides=3)),
        ("1 No Ball", {"runs": 1, "noball": 1, "ball": False}, DeliveryScore(noballs=1)),
        (
            "2 No Balls",
            {"runs": 2, "noball": 1, "noball_runs": 2, "ball": False},
            DeliveryScore(noballs=2),
        ),
        (
            "1 No Ball + 3 Runs",
            {"runs": 4, "noball": 1, "noball_runs": 3, "ball": False},
            DeliveryScore(noballs=1, runs_bat=3),
        ),
        (
            "No Ball + SIX",
            {"runs": 7, "six": True, "noball": 1, "ball": False},
            DeliveryScore(noballs=1, runs_bat=6, is_six=True),
        ),
        (
            "No Ball + 4 Bye",
            {"runs": 1, "bye": 4, "noball": 1, "ball": False},
            DeliveryScore(noballs=1, byes=4),
        ),
        ("5 Penalty Runs", {}, DeliveryScore(penalty=5)),
        ("5 Penalty", {}, DeliveryScore(penalty=5)),
        ("2 Wides + 5 Penalty Runs", {"runs": 2, "ball": False}, DeliveryScore(wides=2, penalty=5)),
        ("Catch Out", {"is_wicket": True}, DeliveryScore(kind=WicketKind.CAUGHT)),
        ("Catch Out (Sub)", {"is_wicket": True}, DeliveryScore(kind=WicketKind.CAUGHT)),
        ("Clean Bowled", {"is_wicket": True}, DeliveryScore(kind=WicketKind.BOWLED)),
        ("LBW OUT", {"is_wicket": True}, DeliveryScore(kind=WicketKind.LBW)),
        ("Run Out", {"is_wicket": True}, DeliveryScore(kind=WicketKind.RUN_OUT)),
        (
            "Run Out + 1",
            {"runs": 1, "is_wicket": True},
            DeliveryScore(runs_bat=1, kind=WicketKind.RUN_OUT),
        ),
        ("Run Out (Subs)", {"is_wicket": True}, DeliveryScore(kind=WicketKind.RUN_OUT)),
        (
            "1 Bye + Run Out",
            {"bye": 1, "is_wicket": True},
            DeliveryScore(byes=1, kind=WicketKind.RUN_OUT),
        ),
        ("1 Bye + Retired Hurt", {"bye": 1}, DeliveryScore(byes=1, kind=WicketKind.RETIRED_HURT)),
        (
            "1 Wide + stump Out",
            {"runs": 1, "ball": False, "is_wicket": True},
            DeliveryScore(wides=1, kind=WicketKind.STUMPED),
        ),
        ("Hit Wicket", {"is_wicket": True}, DeliveryScore(kind=WicketKind.HIT_WICKET)),
        (
            "Obstructing the field Out",
            {"is_wicket": True},
            DeliveryScore(kind=WicketKind.OBSTRUCTING),
        ),
        (
            "Timed Out",
            {"is_wicket": True, "ball": False},
            DeliveryScore(kind=WicketKind.TIMED_OUT, is_delivery=False),
        ),
        ("Not Out", {}, DeliveryScore()),
    ],
)
def test_score_names_are_parsed(name: str, fields: dict[str, Any], reading: DeliveryScore) -> None:
    assert parse_score(SportMonksScore(name, **fields)) == reading


@pytest.mark.parametrize(
    ("fields", "reading"),
    [
        ({"runs": 2, "ball": True}, DeliveryScore(runs_bat=2)),
        ({"runs": 4, "four": True, "ball": True}, DeliveryScore(runs_bat=4, is_four=True)),
        ({"runs": 1, "ball": False}, DeliveryScore(wides=1)),
        ({"runs": 3, "noball": 1, "ball": False}, DeliveryScore(noballs=1, runs_bat=2)),
        ({"bye": 2, "ball": True}, DeliveryScore(byes=2)),
        ({"is_wicket": True, "ball": True}, DeliveryScore(kind=WicketKind.OTHER)),
    ],
)
def test_numeric_fields_replace_an_unknown_name(
    fields: dict[str, Any], reading: DeliveryScore
) -> None:
    assert parse_score(SportMonksScore("A new thing", **fields)) == reading


@given(st.text(max_size=30), st.integers(-5, 9), st.booleans())
def test_any_name_can_be_parsed(name: str, runs: int, ball: bool) -> None:
    reading = parse_score(SportMonksScore(name, runs=runs, ball=ball))
    assert (
        min(
            reading.runs_bat,
            reading.wides,
            reading.noballs,
            reading.byes,
            reading.leg_byes,
            reading.penalty,
        )
        >= 0
    )


@given(st.integers(0, 999), st.integers(0, 9))
def test_overs_are_two_integers(whole: int, balls: int) -> None:
    """As a float, 19.4 would be 19.399999."""
    assert parse_overs(Decimal(f"{whole}.{balls}")) == Overs(whole, balls)


@pytest.mark.parametrize("number", ["-0.1", "1e9", "NaN", "Infinity"])
def test_invalid_overs_are_rejected(number: str) -> None:
    with pytest.raises(MalformedFixture):
        parse_overs(Decimal(number))


@pytest.mark.parametrize(
    "text", ["2026-11-15T14:00:00.000000Z", "2026-11-15 14:00:00", "2026-11-15T15:00:00+01:00"]
)
def test_start_times_have_one_format(text: str) -> None:
    assert parse_start_time(text) == "2026-11-15T14:00:00Z"


def test_an_invalid_start_time_is_rejected() -> None:
    with pytest.raises(MalformedFixture):
        parse_start_time("tomorrow")
