"""Which events the balls of a match give, by the laws of cricket."""

from collections.abc import Sequence

import msgspec
import pytest

from tally.cricket.model.ball_log import BallLog, merge_poll
from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import MatchStatus, Target, Wicket, WicketKind
from tally.cricket.model.history import match_events
from tests.cricket.match_script import MatchScript, feed_of

QUIET = {EventKind.NEW_BATTER, EventKind.BATTER_ON_FIRE}


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
    return [event.kind.value for event in events if event.kind not in QUIET]


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
def test_an_over_gives_its_events(words: str, kinds: list[str]) -> None:
    """Each by its own law: a run out is no bowler's wicket, byes spoil no maiden, an all-run four is no boundary."""
    assert kinds_of(events_of(MatchScript().innings(1, words))) == kinds


def test_a_hat_trick_lies_across_overs_and_innings() -> None:
    """What the bowler bowled last counts, whoever bowled in between and however long ago."""
    play = MatchScript().innings(1, ". . . . . W" + " 1" * 6 + " W W", bowlers=["a", "b"])
    assert kinds_of(events_of(play))[-3:] == ["wicket", "hat_trick", "bowler_on_fire"]
    test = (
        MatchScript()
        .innings(1, ". . . . W W", bowlers=["a"])
        .innings(2, "1 1")
        .innings(3, "W .", bowlers=["a"])
    )
    assert "hat_trick" in kinds_of(events_of(test, total_overs=None))


def test_a_super_over_keeps_its_own_hat_trick() -> None:
    """Two wickets at the end of the match and one in the super over are none."""
    play = (
        MatchScript()
        .innings(1, "1 1")
        .innings(2, ". . . . W W", bowlers=["a"])
        .innings(4, "W .", bowlers=["a"])
    )
    events = events_of(play, super_overs=frozenset({3, 4}))
    assert "hat_trick" not in kinds_of(events)
    assert events[-1].is_super_over


def test_an_over_of_two_bowlers_is_no_maiden() -> None:
    """Whoever had to stop in the middle has bowled no complete over."""
    play = MatchScript().innings(1, ". . . . . .")
    balls = [
        ball if ball.number < 4 else msgspec.structs.replace(ball, bowler_id="other")
        for ball in play.balls
    ]
    feed = feed_of(balls)
    assert kinds_of(match_events(feed, merge_poll(BallLog(), feed))) == []


def test_milestones_come_once_each_and_on_their_ball() -> None:
    """Fifty, nineties and hundred, with the runs and balls that the batter had then."""
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


def test_a_bowler_is_on_fire_with_the_third_wicket_and_each_one_after() -> None:
    """A run out is not one of them."""
    events = events_of(MatchScript().innings(1, "W . W R . 1 W W", bowlers=["a"]))
    assert [event.count for event in events if event.kind is EventKind.BOWLER_ON_FIRE] == [3, 4]


def test_a_batter_is_on_fire_once() -> None:
    """Thirty at two a ball, however often the rate falls and rises again."""
    events = events_of(
        MatchScript().innings(1, "6 6 6 6 6 . . . . . . . . . . . . . 6 6 6 6 6 6 6 6")
    )
    fire = [event.subject for event in events if event.kind is EventKind.BATTER_ON_FIRE]
    assert len(fire) == len(set(fire)) >= 1


def test_new_batters_are_those_who_did_not_open() -> None:
    """Who retires hurt is replaced, and that is told as well."""
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
    """All out and overs complete are seen in the scores; the rest when the feed says that it is over."""
    ends = [
        event
        for event in events_of(MatchScript().innings(1, words), status, target=target)
        if event.kind is EventKind.INNINGS_END
    ]
    assert [event.reason for event in ends] == [reason]


def test_a_chase_ends_with_its_target() -> None:
    """A revised target that the feed states is believed at once; one of our own reckoning only when the match is over."""
    play = MatchScript().innings(1, "1 " * 120).innings(2, "6 " * 10)
    assert kinds_of(events_of(play)).count("innings_end") == 1
    ends = [
        event for event in events_of(play, target=Target(60)) if event.kind is EventKind.INNINGS_END
    ]
    assert [event.reason for event in ends] == ["overs_complete", "target_reached"]


def test_a_side_is_out_in_a_super_over_with_two_wickets() -> None:
    """And its innings end is told before the next innings' first event."""
    play = MatchScript().innings(1, "1").innings(2, "1").innings(3, "4 W W").innings(4, "6")
    events = events_of(play, super_overs=frozenset({3, 4}))
    assert kinds_of(events)[-2:] == ["innings_end", "six"]
    assert events[-2].reason == "all_out"


@pytest.mark.parametrize(
    "status",
    [MatchStatus.ABANDONED, MatchStatus.CANCELLED, MatchStatus.POSTPONED, MatchStatus.FINISHED],
)
def test_a_match_that_is_over_has_one_end(status: MatchStatus) -> None:
    """Also one in which no ball was bowled."""
    assert kinds_of(events_of(MatchScript(), status)) == ["match_end"]
    assert kinds_of(events_of(MatchScript().innings(1, "1 1"), status))[-2:] == [
        "innings_end",
        "match_end",
    ]


def test_a_wicket_without_a_ball_is_none_of_the_bowlers() -> None:
    """A batter who is timed out is a wicket, breaks no run of wickets, and uses up no ball."""
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
