"""Event detection from balls, according to the Laws of Cricket."""

from collections.abc import Sequence

import msgspec
import pytest

from tally.cricket.model.ball_log import BallLog, merge_poll
from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import MatchStatus, Target, Wicket, WicketKind
from tally.cricket.model.history import match_events
from tests.cricket.match_script import MatchScript, feed_of

EXCLUDED = {EventKind.NEW_BATTER, EventKind.BATTER_ON_FIRE}


def events_of(
    play: MatchScript,
    status: MatchStatus = MatchStatus.IN_PLAY,
    *,
    super_overs: frozenset[int] = frozenset(),
    total_overs: int | None = 20,
    target: Target | None = None,
) -> list[KeyEvent]:
    feed = feed_of(
        play.balls, status, super_overs=super_overs, total_overs=total_overs, target=target
    )
    return match_events(feed, merge_poll(BallLog(), feed))


def kinds_of(events: Sequence[KeyEvent]) -> list[str]:
    return [event.kind.value for event in events if event.kind not in EXCLUDED]


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (". . . . . .", ["maiden"]),
        (". b4 lb1 . . .", ["maiden"]),
        (". . wd . . . .", []),
        (". . nb . . . .", []),
        (". . p5 . . .", ["maiden"]),
        (". . . . .", []),
        (". . W . . .", ["wicket", "maiden"]),
        ("a4 . 4 6 6 .", ["four", "six", "six", "consecutive_sixes"]),
        ("6 6 6", ["six", "six", "consecutive_sixes", "six", "consecutive_sixes"]),
        ("6 wd 6", ["six", "six", "consecutive_sixes"]),
        ("6 nb6 6", ["six", "six", "consecutive_sixes", "six", "consecutive_sixes"]),
        ("6 . 6", ["six", "six"]),
        ("W W W", ["wicket", "wicket", "on_hat_trick", "wicket", "hat_trick", "bowler_on_fire"]),
        ("W R W", ["wicket", "wicket", "wicket"]),
        ("W wd W W", ["wicket", "wicket", "wicket", "on_hat_trick", "bowler_on_fire"]),
        ("W S W", ["wicket", "wicket", "on_hat_trick", "wicket", "hat_trick", "bowler_on_fire"]),
        ("W H W", ["wicket", "wicket"]),
    ],
)
def test_an_over_has_its_events(words: str, kinds: list[str]) -> None:
    """A run out is not the bowler's, byes spoil no maiden, an all-run four is no boundary."""
    assert kinds_of(events_of(MatchScript().innings(1, words))) == kinds


def test_a_hat_trick_may_span_overs_and_innings() -> None:
    """The bowler's last balls count, even if another bowler bowled in between."""
    play = MatchScript().innings(1, ". . . . . W" + " 1" * 6 + " W W", bowlers=["a", "b"])
    assert kinds_of(events_of(play))[-3:] == ["wicket", "hat_trick", "bowler_on_fire"]
    test = (
        MatchScript()
        .innings(1, ". . . . W W", bowlers=["a"])
        .innings(2, "1 1")
        .innings(3, "W .", bowlers=["a"])
    )
    assert "hat_trick" in kinds_of(events_of(test, total_overs=None))


def test_a_super_over_counts_hat_tricks_separately() -> None:
    """Two wickets at the end of the match and one in the super over are no hat-trick."""
    play = (
        MatchScript()
        .innings(1, "1 1")
        .innings(2, ". . . . W W", bowlers=["a"])
        .innings(4, "W .", bowlers=["a"])
    )
    events = events_of(play, super_overs=frozenset({3, 4}))
    assert "hat_trick" not in kinds_of(events)
    assert events[-1].is_super_over


def test_an_over_of_two_bowlers_is_not_a_maiden() -> None:
    """A bowler who stops in the middle has not bowled a complete over."""
    play = MatchScript().innings(1, ". . . . . .")
    balls = [
        ball if ball.number < 4 else msgspec.structs.replace(ball, bowler_id="other")
        for ball in play.balls
    ]
    feed = feed_of(balls)
    assert kinds_of(match_events(feed, merge_poll(BallLog(), feed))) == []


def test_each_milestone_happens_once_and_at_its_ball() -> None:
    """Fifty, nineties and hundred have the batter's runs and balls at that time."""
    play = MatchScript().innings(1, ["6", "wd", *["2"] * 5, *["1"] * 6] * 30)
    reached = [
        event
        for event in events_of(play)
        if event.kind in {EventKind.FIFTY, EventKind.NINETIES, EventKind.HUNDRED}
    ]
    first = [event for event in reached if event.subject == "p1.1"]
    assert [event.kind for event in first] == [
        EventKind.FIFTY,
        EventKind.NINETIES,
        EventKind.HUNDRED,
    ]
    assert [event.runs >= runs for event, runs in zip(first, (50, 90, 100), strict=True)] == [
        True
    ] * 3


def test_a_bowler_is_on_fire_from_the_third_wicket() -> None:
    """Run outs do not count."""
    events = events_of(MatchScript().innings(1, "W . W R . 1 W W", bowlers=["a"]))
    assert [event.count for event in events if event.kind is EventKind.BOWLER_ON_FIRE] == [3, 4]


def test_a_batter_is_on_fire_once() -> None:
    """The event happens once, however often the rate falls and rises again."""
    events = events_of(
        MatchScript().innings(1, "6 6 6 6 6 . . . . . . . . . . . . . 6 6 6 6 6 6 6 6")
    )
    fire = [event.subject for event in events if event.kind is EventKind.BATTER_ON_FIRE]
    assert len(fire) == len(set(fire)) >= 1


def test_new_batters_exclude_the_openers() -> None:
    """The replacement of a batter who retires hurt is a new batter."""
    events = events_of(MatchScript().innings(1, "1 W . H 1 1"))
    assert [event.subject for event in events if event.kind is EventKind.NEW_BATTER] == [
        "p1.3",
        "p1.4",
    ]


@pytest.mark.parametrize(
    ("words", "status", "target", "reason"),
    [
        ("W " * 10, MatchStatus.IN_PLAY, None, "all_out"),
        ("1 " * 120, MatchStatus.IN_PLAY, None, "overs_complete"),
        ("1 " * 30, MatchStatus.INNINGS_BREAK, None, "closed"),
        ("1 " * 30, MatchStatus.FINISHED, None, "closed"),
    ],
)
def test_an_innings_ends_for_a_reason(
    words: str, status: MatchStatus, target: Target | None, reason: str
) -> None:
    """Scores prove all out and complete overs; other ends need the feed."""
    ends = [
        event
        for event in events_of(MatchScript().innings(1, words), status, target=target)
        if event.kind is EventKind.INNINGS_END
    ]
    assert [event.reason for event in ends] == [reason]


def test_a_chase_ends_with_its_target() -> None:
    """It ends when the feed says so: a target that the feed states may be a par score."""
    play = MatchScript().innings(1, "1 " * 120).innings(2, "6 " * 10)
    for target in (None, Target(60)):
        assert kinds_of(events_of(play, target=target)).count("innings_end") == 1
    events = events_of(play, MatchStatus.FINISHED, target=Target(60))
    reasons = [event.reason for event in events if event.kind is EventKind.INNINGS_END]
    assert reasons == ["overs_complete", "target_reached"]


def test_a_super_over_ends_with_two_wickets() -> None:
    """The end of the innings precedes the first event of the next one."""
    play = MatchScript().innings(1, "1").innings(2, "1").innings(3, "4 W W").innings(4, "6")
    events = events_of(play, super_overs=frozenset({3, 4}))
    assert kinds_of(events)[-2:] == ["innings_end", "six"]
    assert events[-2].reason == "all_out"


@pytest.mark.parametrize(
    "status",
    [MatchStatus.ABANDONED, MatchStatus.CANCELLED, MatchStatus.FINISHED],
)
def test_a_finished_match_has_one_end_event(status: MatchStatus) -> None:
    """This includes a match without a ball."""
    assert kinds_of(events_of(MatchScript(), status)) == ["match_end"]
    assert kinds_of(events_of(MatchScript().innings(1, "1 1"), status))[-2:] == [
        "innings_end",
        "match_end",
    ]


def test_a_wicket_without_a_ball_is_not_credited_to_the_bowler() -> None:
    """A timed-out batter is a wicket, does not affect a hat-trick and uses no ball."""
    balls = MatchScript().innings(1, "W W W").balls
    late = Wicket("p1.9", "Late", WicketKind.TIMED_OUT)
    between = msgspec.structs.replace(
        balls[1], id=balls[1].id + 1, is_delivery=False, wicket=late, runs_bat=0, runs_total=0
    )
    feed = feed_of([*balls[:2], between, balls[2]])
    events = match_events(feed, merge_poll(BallLog(), feed))
    assert kinds_of(events).count("wicket") == 4
    assert kinds_of(events).count("hat_trick") == 1
    assert str(feed.innings[0].overs) == "0.3"


def test_a_postponed_match_is_not_over() -> None:
    assert not events_of(MatchScript(), MatchStatus.POSTPONED)
