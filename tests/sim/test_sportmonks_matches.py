"""Match files of every kind are read and scored: what they come to is what the game says."""

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
from tests.sim.sportmonks_files import AWAY, HOME, delivery, document, documents, innings, match_of


def told(match: Match) -> dict[str, Any]:
    """The fixture once the match is over."""
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
def test_a_recorded_match_ends_in_its_scorecards(name: str) -> None:
    """Totals, batters and bowlers of every innings are those that others have worked out."""
    fixture, wanted = told(recorded(name)), expected(name)
    assert fixture["note"] == wanted["result"]
    for run, card in zip(fixture["runs"], wanted["innings"], strict=True):
        assert (run["score"], run["wickets"], float(run["overs"])) == (
            card["runs"],
            card["wickets"],
            float(card["overs"]),
        )
        batting = rows(fixture, "batting", run["inning"], "score", "ball", "four_x", "six_x")
        assert batting == [
            (each["runs"], each["balls"], each["fours"], each["sixes"]) for each in card["batters"]
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
                float(each["overs"]),
                each["maidens"],
                each["runs"],
                each["wickets"],
                each["wides"],
                each["noballs"],
            )
            for each in card["bowlers"]
        ]


def test_super_overs_are_innings_five_and_six() -> None:
    fixture = told(recorded("1082625"))
    assert [run["inning"] for run in fixture["runs"]] == [1, 2, 5, 6]
    assert fixture["super_over"]
    assert {ball["scoreboard"] for ball in fixture["balls"]} == {"S1", "S2", "S5", "S6"}


def test_a_second_super_over_follows_the_first() -> None:
    ball = [delivery(1)]
    match = match_of(
        *(
            innings(team, ball, super_over=number > 1)
            for number, team in enumerate([HOME, AWAY, AWAY, HOME, HOME, AWAY])
        )
    )
    assert [run["inning"] for run in told(match)["runs"]] == [1, 2, 5, 6, 7, 8]


def test_rain_leaves_a_target_in_fewer_overs() -> None:
    fixture = told(recorded("1370353"))
    assert (fixture["rpc_target"], fixture["rpc_overs"]) == ("171", "15")
    assert fixture["localteam_dl_data"] == {"score": 170, "overs": "15", "wickets_out": None}


def test_a_match_without_a_result_is_abandoned() -> None:
    fixture = told(recorded("1359519"))
    assert (fixture["status"], fixture["draw_noresult"], fixture["winner_team_id"]) == (
        "Aban.",
        "noresult",
        None,
    )


def test_an_over_that_was_miscounted_is_one_of_the_bowlers() -> None:
    """Five legal balls, and the next over begins: the umpires have called it."""
    short = [delivery(bowler="Y Player")] * 5
    match = match_of(innings(HOME, short, [delivery(1)]))
    assert rows(told(match), "bowling", 1, "overs", "medians") == [(1, 1), (0.1, 0)]


def test_an_over_of_seven_is_still_one() -> None:
    match = match_of(innings(HOME, [delivery()] * 7, [delivery(bowler="Y Player")]))
    fixture = told(match)
    assert rows(fixture, "bowling", 1, "overs", "medians") == [(1, 1), (0.1, 0)]
    assert [ball["ball"] for ball in fixture["balls"]] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.1]


def test_an_over_that_two_bowlers_share_is_nobodys_maiden() -> None:
    match = match_of(
        innings(HOME, [*[delivery(bowler="Y Player")] * 2, *[delivery()] * 4], [delivery()])
    )
    assert rows(told(match), "bowling", 1, "overs", "medians") == [(0.2, 0), (0.5, 0)]


def test_byes_do_not_spoil_a_maiden_and_wides_do() -> None:
    quiet = [
        delivery(),
        *[delivery(extras={"byes": 1})] * 2,
        *[delivery(extras={"legbyes": 4})] * 3,
    ]
    wide = [delivery(extras={"wides": 1}, bowler="Y Player"), *[delivery(bowler="Y Player")] * 6]
    assert rows(told(match_of(innings(HOME, quiet, wide))), "bowling", 1, "medians", "runs") == [
        (1, 0),
        (0, 1),
    ]


def test_a_wide_repeats_the_number_of_the_ball_and_is_not_faced() -> None:
    match = match_of(
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
    fixture = told(match)
    assert [ball["ball"] for ball in fixture["balls"]] == [0.1, 0.1, 0.2, 0.2]
    assert rows(fixture, "batting", 1, "score", "ball") == [(5, 3), (0, 0)]


def test_who_retires_hurt_may_come_back() -> None:
    hurt = delivery(wickets=[{"kind": "retired hurt", "player_out": "A Player"}])
    away = match_of(innings(HOME, [delivery(1), hurt, delivery(batter="C Player")]))
    assert [row["result"]["name"] for row in told(away)["batting"]] == [
        "Retired Hurt",
        "Not Out",
        "Not Out",
    ]
    assert told(away)["runs"][0]["wickets"] == 0
    back = match_of(innings(HOME, [delivery(1), hurt, delivery(batter="C Player"), delivery(2)]))
    assert rows(told(back), "batting", 1, "score") == [(3,), (0,), (0,)]
    assert [row["result"]["name"] for row in told(back)["batting"]] == ["Not Out"] * 3


def test_two_wickets_with_one_ball_are_two_rows() -> None:
    """The second fell without a ball: it has the same number, and is none of the over's."""
    both = [
        {"kind": "caught", "player_out": "A Player"},
        {"kind": "timed out", "player_out": "C Player"},
    ]
    fixture = told(match_of(innings(HOME, [delivery(wickets=both), delivery(batter="D Player")])))
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


def test_penalty_runs_before_and_after_count_for_the_side() -> None:
    match = match_of(innings(HOME, [delivery(2)], penalty_runs={"pre": 5, "post": 10}))
    broadcast = MatchPlayback(match, ManualClock())
    broadcast.deliver()
    assert broadcast.fixture()["runs"][0]["score"] == 7
    broadcast.finish()
    assert broadcast.fixture()["runs"][0]["score"] == 17
    assert broadcast.fixture()["scoreboards"][0]["penalty"] == 15


def test_a_test_match_has_four_innings_one_of_them_after_a_follow_on() -> None:
    ball = [delivery(1)]
    played = [
        innings(HOME, ball, declared=True),
        innings(AWAY, ball),
        innings(AWAY, ball),
        innings(HOME, forfeited=True),
    ]
    fixture = told(match_of(*played, match_type="Test", overs=None, outcome={"result": "draw"}))
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
def test_every_outcome_has_its_sentence(outcome: dict[str, Any], note: str) -> None:
    assert told(match_of(innings(HOME, [delivery()]), outcome=outcome))["note"] == note


def test_the_older_layout_is_read_too() -> None:
    """Innings and deliveries as maps with one name, and a batter who is a batsman."""
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
    (run,) = told(match_of(older))["runs"]
    assert (run["score"], run["wickets"], run["overs"]) == (4, 1, 0.2)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"\xff", b'{"info": {"teams": ["A"]}}', b'{"info": {"teams": ["A", "A"]}}'],
)
def test_what_is_no_match_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidMatchFile):
        read_match(content)


@given(documents)
@settings(max_examples=40)
def test_any_file_can_be_told_at_any_moment(made: dict[str, Any]) -> None:
    """Totals are those of the balls, wickets those of the batters, and ids rise."""
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
def test_a_file_with_nonsense_in_it_is_told_or_refused(
    made: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever stands in whichever place, there is a fixture or a NotAMatch, and nothing else."""
    made = msgspec.json.decode(
        msgspec.json.encode(made)
    )  # a copy: parts of it are drawn again for the next example
    places = _places(made)
    holder, key = places[data.draw(st.integers(0, len(places) - 1))]
    holder[key] = data.draw(json_values)
    try:
        match = read_match(msgspec.json.encode(made))
    except InvalidMatchFile:
        return
    assert told(match)["resource"] == "fixtures"


def _places(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, (dict, list)):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [place for key, inner in items for place in [(value, key), *_places(inner)]]


def test_the_match_that_comes_along_has_something_of_everything() -> None:
    match = bundled_match()
    fixture = told(match)
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
    assert document(innings(HOME))["info"]["teams"] == [HOME, AWAY]
