"""Match files of every kind are parsed and scored according to the laws of cricket."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.kit.clock import ManualClock
from tally.sim.sportmonks.cricsheet import InvalidMatchFile, bundled_match, read_match
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.playback import MatchPlayback
from tests.recorded import NAMES, expected, recorded
from tests.sim.match_files import (
    AWAY,
    HOME,
    build_match,
    delivery,
    documents,
    innings,
    match_document,
)


def final_fixture(match: Match) -> dict[str, Any]:
    """The fixture of a finished match."""
    broadcast = MatchPlayback(match, ManualClock())
    broadcast.finish()
    return broadcast.fixture()


def rows(
    fixture: dict[str, Any], relation: str, number: int, *fields: str
) -> list[tuple[Any, ...]]:
    return [
        tuple(row[field] for field in fields)
        for row in fixture[relation]
        if row["scoreboard"] == f"S{number}"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_match_has_the_published_scorecards(name: str) -> None:
    """Totals, batters and bowlers of every innings match independent scorecards."""
    fixture, scorecard = final_fixture(recorded(name)), expected(name)
    assert fixture["note"] == scorecard["result"]
    for run, card in zip(fixture["runs"], scorecard["innings"], strict=True):
        assert (run["score"], run["wickets"], float(run["overs"])) == (
            card["runs"],
            card["wickets"],
            float(card["overs"]),
        )
        batting = rows(fixture, "batting", run["inning"], "score", "ball", "four_x", "six_x")
        assert batting == [
            (entry["runs"], entry["balls"], entry["fours"], entry["sixes"])
            for entry in card["batters"]
        ]
        bowling = rows(
            fixture,
            "bowling",
            run["inning"],
            "overs",
            "medians",
            "runs",
            "wickets",
            "wide",
            "noball",
        )
        assert [(float(overs), *rest) for overs, *rest in bowling] == [
            (
                float(entry["overs"]),
                entry["maidens"],
                entry["runs"],
                entry["wickets"],
                entry["wides"],
                entry["noballs"],
            )
            for entry in card["bowlers"]
        ]


def test_super_overs_are_innings_five_and_six() -> None:
    fixture = final_fixture(recorded("1082625"))
    assert [run["inning"] for run in fixture["runs"]] == [1, 2, 5, 6]
    assert fixture["super_over"]
    assert {ball["scoreboard"] for ball in fixture["balls"]} == {"S1", "S2", "S5", "S6"}


def test_second_super_over_is_innings_seven_and_eight() -> None:
    ball = [delivery(1)]
    match = build_match(
        *(
            innings(team, ball, super_over=number > 1)
            for number, team in enumerate([HOME, AWAY, AWAY, HOME, HOME, AWAY])
        )
    )
    assert [run["inning"] for run in final_fixture(match)["runs"]] == [1, 2, 5, 6, 7, 8]


def test_rain_revises_target_and_overs() -> None:
    fixture = final_fixture(recorded("1370353"))
    assert (fixture["rpc_target"], fixture["rpc_overs"]) == ("171", "15")
    assert fixture["localteam_dl_data"] == {"score": 170, "overs": "15", "wickets_out": None}


def test_match_without_result_is_abandoned() -> None:
    fixture = final_fixture(recorded("1359519"))
    assert (fixture["status"], fixture["draw_noresult"], fixture["winner_team_id"]) == (
        "Aban.",
        "noresult",
        None,
    )


def test_miscounted_over_counts_for_the_bowler() -> None:
    """After five legal balls the next over begins."""
    short = [delivery(bowler="Y Player")] * 5
    match = build_match(innings(HOME, short, [delivery(1)]))
    assert rows(final_fixture(match), "bowling", 1, "overs", "medians") == [(1, 1), (0.1, 0)]


def test_over_of_seven_balls_counts_once() -> None:
    match = build_match(innings(HOME, [delivery()] * 7, [delivery(bowler="Y Player")]))
    fixture = final_fixture(match)
    assert rows(fixture, "bowling", 1, "overs", "medians") == [(1, 1), (0.1, 0)]
    assert [ball["ball"] for ball in fixture["balls"]] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.1]


def test_shared_over_is_no_maiden() -> None:
    match = build_match(
        innings(HOME, [*[delivery(bowler="Y Player")] * 2, *[delivery()] * 4], [delivery()])
    )
    assert rows(final_fixture(match), "bowling", 1, "overs", "medians") == [(0.2, 0), (0.5, 0)]


def test_byes_keep_a_maiden_and_wides_do_not() -> None:
    quiet = [
        delivery(),
        *[delivery(extras={"byes": 1})] * 2,
        *[delivery(extras={"legbyes": 4})] * 3,
    ]
    wide = [delivery(extras={"wides": 1}, bowler="Y Player"), *[delivery(bowler="Y Player")] * 6]
    assert rows(
        final_fixture(build_match(innings(HOME, quiet, wide))), "bowling", 1, "medians", "runs"
    ) == [
        (1, 0),
        (0, 1),
    ]


def test_wide_repeats_the_ball_number_and_is_not_faced() -> None:
    match = build_match(
        innings(
            HOME,
            [
                delivery(extras={"wides": 1}),
                delivery(1),
                delivery(4, extras={"noballs": 1}),
                delivery(),
            ],
        )
    )
    fixture = final_fixture(match)
    assert [ball["ball"] for ball in fixture["balls"]] == [0.1, 0.1, 0.2, 0.2]
    assert rows(fixture, "batting", 1, "score", "ball") == [(5, 3), (0, 0)]


def test_batter_retired_hurt_may_resume() -> None:
    hurt = delivery(wickets=[{"kind": "retired hurt", "player_out": "A Player"}])
    away = build_match(innings(HOME, [delivery(1), hurt, delivery(batter="C Player")]))
    assert [row["result"]["name"] for row in final_fixture(away)["batting"]] == [
        "Retired Hurt",
        "Not Out",
        "Not Out",
    ]
    assert final_fixture(away)["runs"][0]["wickets"] == 0
    back = build_match(innings(HOME, [delivery(1), hurt, delivery(batter="C Player"), delivery(2)]))
    assert rows(final_fixture(back), "batting", 1, "score") == [(3,), (0,), (0,)]
    assert [row["result"]["name"] for row in final_fixture(back)["batting"]] == ["Not Out"] * 3


def test_two_dismissals_on_one_ball_are_two_rows() -> None:
    """The second has the same ball number and does not count as a ball."""
    both = [
        {"kind": "caught", "player_out": "A Player"},
        {"kind": "timed out", "player_out": "C Player"},
    ]
    fixture = final_fixture(
        build_match(innings(HOME, [delivery(wickets=both), delivery(batter="D Player")]))
    )
    assert [
        (ball["ball"], ball["score"]["name"], ball["score"]["ball"]) for ball in fixture["balls"]
    ] == [
        (0.1, "Catch Out (Sub)", True),
        (0.1, "Timed Out", False),
        (0.2, "No Run", True),
    ]
    assert fixture["runs"][0]["wickets"] == 2
    ids = [ball["id"] for ball in fixture["balls"]]
    assert ids == sorted(set(ids))


def test_penalty_runs_before_and_after_an_innings_count() -> None:
    match = build_match(innings(HOME, [delivery(2)], penalty_runs={"pre": 5, "post": 10}))
    broadcast = MatchPlayback(match, ManualClock())
    broadcast.deliver()
    assert broadcast.fixture()["runs"][0]["score"] == 7
    broadcast.finish()
    assert broadcast.fixture()["runs"][0]["score"] == 17
    assert broadcast.fixture()["scoreboards"][0]["penalty"] == 15


def test_test_match_with_follow_on_has_four_innings() -> None:
    ball = [delivery(1)]
    played = [
        innings(HOME, ball, declared=True),
        innings(AWAY, ball),
        innings(AWAY, ball),
        innings(HOME, forfeited=True),
    ]
    fixture = final_fixture(
        build_match(*played, match_type="Test", overs=None, outcome={"result": "draw"})
    )
    assert [run["inning"] for run in fixture["runs"]] == [1, 2, 3, 4]
    assert (fixture["follow_on"], fixture["type"], fixture["draw_noresult"], fixture["note"]) == (
        True,
        "Test",
        "draw",
        "Match drawn",
    )


@pytest.mark.parametrize(
    ("outcome", "note"),
    [
        ({"winner": HOME, "by": {"runs": 1}}, "Rovers won by 1 run"),
        (
            {"winner": HOME, "by": {"innings": 1, "runs": 30}},
            "Rovers won by an innings and 30 runs",
        ),
        ({"winner": AWAY, "method": "Awarded"}, "Wanderers won (Awarded)"),
        ({"result": "tie", "bowl_out": HOME}, "Match tied (Rovers won the bowl-out)"),
        ({"result": "tie", "method": "D/L"}, "Match tied (D/L method)"),
        ({}, "Match ended"),
    ],
)
def test_every_outcome_has_a_note(outcome: dict[str, Any], note: str) -> None:
    assert final_fixture(build_match(innings(HOME, [delivery()]), outcome=outcome))["note"] == note


def test_older_file_layout_is_supported() -> None:
    """Innings and deliveries are maps with one key, and the batter is `batsman`."""
    ball = {
        "batsman": "A",
        "bowler": "X",
        "non_striker": "B",
        "runs": {"batsman": 4, "extras": 0, "total": 4},
    }
    out = ball | {
        "runs": {"batsman": 0, "extras": 0, "total": 0},
        "wicket": {"kind": "bowled", "player_out": "A"},
    }
    older = {"1st innings": {"team": HOME, "deliveries": [{"0.1": ball}, {"0.2": out}]}}
    (run,) = final_fixture(build_match(older))["runs"]
    assert (run["score"], run["wickets"], run["overs"]) == (4, 1, 0.2)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"\xff", b'{"info": {"teams": ["A"]}}', b'{"info": {"teams": ["A", "A"]}}'],
)
def test_file_without_a_match_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidMatchFile):
        read_match(content)


@given(documents)
@settings(max_examples=40)
def test_any_file_renders_at_any_step(made: dict[str, Any]) -> None:
    """Totals match the balls, wickets match the batters, and ids increase."""
    match = read_match(msgspec.json.encode(made))
    broadcast = MatchPlayback(match, ManualClock())
    while broadcast.position < len(broadcast.steps):
        broadcast.step(7)
        fixture = broadcast.fixture()
        for run in fixture["runs"]:
            batting = [
                row for row in fixture["batting"] if row["scoreboard"] == f"S{run['inning']}"
            ]
            extras = next(
                row for row in fixture["scoreboards"] if row["scoreboard"] == f"S{run['inning']}"
            )
            parts = ("wide", "noball_runs", "bye", "leg_bye", "penalty")
            assert run["score"] == sum(row["score"] for row in batting) + sum(
                extras[part] for part in parts
            )
        ids = [ball["id"] for ball in fixture["balls"]]
        assert ids == sorted(set(ids))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(documents, st.data())
@settings(max_examples=40)
def test_file_with_arbitrary_values_renders_or_is_rejected(
    decode: dict[str, Any], data: st.DataObject
) -> None:
    """Any value in any place gives a fixture or InvalidMatchFile."""
    decode = msgspec.json.decode(
        msgspec.json.encode(decode)
    )  # a copy: parts of it are drawn again for the next example
    places = _paths(decode)
    holder, key = places[data.draw(st.integers(0, len(places) - 1))]
    holder[key] = data.draw(json_values)
    try:
        match = read_match(msgspec.json.encode(decode))
    except InvalidMatchFile:
        return
    assert final_fixture(match)["resource"] == "fixtures"


def _paths(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, (dict, list)):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path for key, inner in items for path in [(value, key), *_paths(inner)]]


def test_bundled_match_covers_many_events() -> None:
    match = bundled_match()
    fixture = final_fixture(match)
    assert fixture["note"] == "Harbour Herons won by 11 runs"
    assert [(run["score"], run["wickets"], run["overs"]) for run in fixture["runs"]] == [
        (115, 6, 8),
        (104, 6, 8),
    ]
    assert max(row["score"] for row in fixture["batting"]) == 66
    assert sum(row["medians"] for row in fixture["bowling"]) == 1
    named = {part for ball in fixture["balls"] for part in ball["score"]["name"].split(" + ")}
    assert {
        "FOUR",
        "SIX",
        "4 Runs",
        "1 Wide",
        "1 No Ball",
        "1 Bye",
        "1 Leg Bye",
        "Retired Hurt",
        "Stump Out",
        "Run Out",
    } <= named
    assert match_document(innings(HOME))["info"]["teams"] == [HOME, AWAY]
