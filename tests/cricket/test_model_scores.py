"""Event detection from scores only; targets and run rates."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.cricket.model.ball_log import BallLog, merge_poll
from tally.cricket.model.events import TIER_1, EventKind, KeyEvent
from tally.cricket.model.feed import MatchStatus, Overs, Target
from tally.cricket.model.history import find_new_events, match_events
from tally.cricket.model.laws import balls_left, chase_target, current_innings, run_rate
from tests.cricket.match_script import MatchScript, feed_of

WORDS = st.sampled_from([".", "1", "2", "4", "6", "6", "W", "C", "R", "wd", "nb", "b1"])


@settings(max_examples=40)
@given(st.lists(WORDS, min_size=1, max_size=120), st.lists(st.integers(0, 120), max_size=12))
def test_scores_imply_the_events_of_the_balls(words: list[str], cuts: list[int]) -> None:
    """Each wicket, milestone and new batter is detected once, regardless of the polls."""
    balls = MatchScript().innings(1, words).balls
    published: list[KeyEvent] = []
    for cut in [*sorted(min(cut, len(balls)) for cut in cuts), len(balls)]:
        status = MatchStatus.FINISHED if cut == len(balls) else MatchStatus.IN_PLAY
        feed = feed_of(balls[:cut], status, with_balls=False)
        published += find_new_events(match_events(feed, BallLog()), published)
    whole = feed_of(balls, MatchStatus.FINISHED)
    known = match_events(whole, merge_poll(BallLog(), whole))
    by_balls = {event.identity for event in known if event.kind not in TIER_1}
    by_scores = [event.identity for event in published]
    assert len(by_scores) == len(set(by_scores))
    # A batter who was on fire only between two polls is not detected.
    missing = by_balls - set(by_scores)
    assert {kind for kind, *_ in missing} <= {EventKind.BATTER_ON_FIRE, EventKind.NEW_BATTER}
    assert {identity for identity in by_scores if identity[0] != EventKind.NEW_BATTER} <= by_balls


def test_all_events_of_a_long_gap_are_detected() -> None:
    """Two fifties and three wickets in one poll are all detected."""
    balls = MatchScript().innings(1, ["2", "2", "1"] * 36 + ["W", "W", "W"]).balls
    before, after = feed_of(balls[:20], with_balls=False), feed_of(balls, with_balls=False)
    published = match_events(before, BallLog())
    new = [event.kind for event in find_new_events(match_events(after, BallLog()), published)]
    assert new.count(EventKind.FIFTY) == 2
    assert new.count(EventKind.WICKET) == 3


@pytest.mark.parametrize(
    ("runs", "balls", "text"), [(0, 0, ""), (1, 6, "1.00"), (100, 63, "9.52"), (7, 4, "10.50")]
)
def test_a_run_rate_has_two_decimals(runs: int, balls: int, text: str) -> None:
    """It is rounded, never a float, and empty before the first ball."""
    assert run_rate(runs, balls) == text


def test_the_target_is_stated_by_the_feed_or_computed() -> None:
    """In limited overs, in a super over and in the fourth innings of a Test."""
    chase = MatchScript().innings(1, "6 6").innings(2, "1")
    feed = feed_of(chase.balls)
    assert chase_target(feed, feed.innings[0]) is None
    assert chase_target(feed, feed.innings[1]) == 13
    assert balls_left(feed, feed.innings[1]) == 119
    revised = feed_of(chase.balls, target=Target(9, Overs(5, 0)))
    assert chase_target(revised, revised.innings[1]) == 9
    assert balls_left(revised, revised.innings[1]) == 29
    test = feed_of(
        MatchScript().innings(1, "6 6").innings(2, "4").innings(3, "2").innings(4, "1").balls,
        total_overs=None,
    )
    last = current_innings(test.innings)
    assert last is not None
    assert chase_target(test, last) == 11
    over = feed_of(
        MatchScript().innings(1, "6").innings(2, "6").innings(3, "4").innings(4, "1").balls,
        super_overs=frozenset({3, 4}),
    )
    assert chase_target(over, over.innings[3]) == 5
    assert balls_left(over, over.innings[3]) == 5
