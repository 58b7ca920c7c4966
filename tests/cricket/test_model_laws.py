"""Why an innings ended: absent and retired batters, revised targets, declarations."""

from typing import Any

import msgspec
import pytest

from tally.cricket.model.feed import MatchFeed, MatchStatus, Overs, Target, WicketKind
from tally.cricket.model.laws import has_ended, innings_end_reason
from tests.cricket.match_script import AWAY, HOME, MatchScript, feed_of

FULL = "1 " * 120
CHASE = MatchScript().innings(1, FULL).innings(2, "6 " * 10)


def finished(play: MatchScript, **changes: Any) -> MatchFeed:
    return msgspec.structs.replace(feed_of(play.balls, MatchStatus.FINISHED), **changes)


def last_reason(feed: MatchFeed) -> str:
    return innings_end_reason(feed, feed.innings[-1])


@pytest.mark.parametrize(
    ("target", "note", "reason"),
    [
        (58, "Wanderers won by 3 runs (D/L method)", "closed"),
        (58, "Wanderers won by 1 run (DLS)", "closed"),
        (58, "Wanderers won by 10 wickets (D/L method)", "target_reached"),
        (58, "", "target_reached"),
        (50, "", "closed"),  # A six cannot pass a target by ten runs: play had continued.
    ],
)
def test_a_side_that_wins_by_runs_reached_no_target(target: int, note: str, reason: str) -> None:
    """The service states the par score as the target, in as many overs as were bowled."""
    for overs in (Overs(1, 4), Overs(10, 0), None):
        feed = finished(CHASE, target=Target(target, overs), note=note, winner_team_id=AWAY.team_id)
        assert last_reason(feed) == reason


def test_passing_a_stated_target_does_not_end_an_innings() -> None:
    feed = feed_of(CHASE.balls, target=Target(20, Overs(10, 0)))
    assert not has_ended(feed, feed.innings[-1])


def test_a_revised_chase_that_falls_short_ends_with_its_overs() -> None:
    play = MatchScript().innings(1, FULL).innings(2, "1 " * 48)
    won = {"note": "Rovers won by 41 runs (DLS)", "winner_team_id": HOME.team_id}
    assert last_reason(finished(play, target=Target(90, Overs(8, 0)), **won)) == "overs_complete"
    assert last_reason(finished(play, target=Target(90, Overs(8, 3)), **won)) == "closed"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("W " * 9, "all_out"),  # One batter is not out; the last one is absent.
        ("W " * 9 + "1", "closed"),  # The last two were batting.
        ("W " * 8, "closed"),
        ("H " + "W " * 9, "all_out"),  # The retired batter did not return.
        ("H H " + "W " * 8, "all_out"),
        ("H " + "W " * 8 + "1", "closed"),
        ("1 " * 111 + "W " * 9, "overs_complete"),
    ],
)
def test_an_innings_without_a_partner_for_the_last_batter_is_all_out(
    words: str, reason: str
) -> None:
    """The score says nine wickets or fewer; the side has no further batter."""
    feed = feed_of(MatchScript().innings(1, words).balls, MatchStatus.INNINGS_BREAK)
    assert last_reason(feed) == reason


def test_a_listed_absent_batter_is_neither_a_wicket_nor_a_batter() -> None:
    feed = feed_of(MatchScript().innings(1, "W " * 8).balls, MatchStatus.INNINGS_BREAK)
    absent = [
        msgspec.structs.replace(feed.innings[0].batters[-1], player_id=name, how_out=kind)
        for name, kind in (("p1.10", WicketKind.ABSENT), ("p1.11", WicketKind.ABSENT))
    ]
    batters = (*feed.innings[0].batters, *absent)
    innings = msgspec.structs.replace(feed.innings[0], batters=batters)
    assert innings_end_reason(feed, innings) == "all_out"
    assert not WicketKind.ABSENT.counts


@pytest.mark.parametrize(
    ("note", "winner", "reason"),
    [
        ("Rovers won by 118 runs", HOME.team_id, "all_out"),
        ("Rovers won by 5 runs (DLS method)", HOME.team_id, "closed"),
        ("No result", None, "closed"),
        ("Rovers won by forfeit", HOME.team_id, "closed"),
    ],
)
def test_a_side_that_loses_by_runs_with_overs_left_was_all_out(
    note: str, winner: str | None, reason: str
) -> None:
    """Several batters may be absent; after rain another method decides."""
    play = MatchScript().innings(1, FULL).innings(2, "1 W W 1")
    assert last_reason(finished(play, note=note, winner_team_id=winner)) == reason


def test_a_declaration_ends_an_innings_of_unlimited_overs() -> None:
    play = MatchScript().innings(1, "1 1").innings(2, "W " * 10).innings(3, "4 4")
    test = {"match_type": "Test", "total_overs": None}
    feed = msgspec.structs.replace(feed_of(play.balls), **test)
    assert [innings_end_reason(feed, innings) for innings in feed.innings] == [
        "declared",
        "all_out",
        "closed",
    ]
    at_break = msgspec.structs.replace(feed, status=MatchStatus.INNINGS_BREAK)
    assert last_reason(at_break) == "declared"
    limited = msgspec.structs.replace(feed, match_type="T20", total_overs=20)
    assert innings_end_reason(limited, limited.innings[0]) == "closed"


def test_a_super_over_is_all_out_after_two_wickets_only() -> None:
    play = MatchScript().innings(1, "1").innings(2, "1").innings(3, "4 H W").innings(4, "6")
    feed = feed_of(play.balls, super_overs=frozenset({3, 4}))
    assert innings_end_reason(feed, feed.innings[2]) == "closed"
