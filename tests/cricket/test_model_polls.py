"""However a match is cut into polls, its events are the same, in the same order, and each is told once."""

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.cricket.model.ball_log import (
    MAX_GAP_POLLS,
    BallLog,
    decode_ball_log,
    encode_ball_log,
    merge_poll,
)
from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import Ball, MatchFeed, MatchStatus, Wicket, WicketKind
from tally.cricket.model.history import find_new_events, match_events
from tests.cricket.match_script import MatchScript, feed_of

WORDS = st.sampled_from(
    [".", "1", "1", "2", "4", "6", "6", "W", "C", "R", "wd", "nb", "b1", "lb2", "a4", "S"]
)
INNINGS = st.lists(WORDS, min_size=1, max_size=30)


class Listener:
    """Hears polls, and keeps what it was told."""

    def __init__(self) -> None:
        self.book = BallLog()
        self.told: list[KeyEvent] = []

    def hear(self, feed: MatchFeed, *, is_final: bool = False) -> list[KeyEvent]:
        self.book = decode_ball_log(encode_ball_log(merge_poll(self.book, feed, is_final=is_final)))
        new = find_new_events(match_events(feed, self.book), self.told)
        self.told += new
        return new


def whole(balls: Sequence[Ball]) -> MatchFeed:
    return feed_of(balls, MatchStatus.FINISHED)


def told_of(events: Sequence[KeyEvent]) -> list[tuple[str, int, str, int]]:
    return [(event.kind, event.innings, event.subject, event.ball_id) for event in events]


def match_of(first: list[str], second: list[str]) -> list[Ball]:
    return MatchScript().innings(1, first).innings(2, second).balls


def at_once(balls: Sequence[Ball]) -> list[tuple[str, int, str, int]]:
    listener = Listener()
    listener.hear(whole(balls))
    return told_of(listener.told)


@settings(max_examples=60)
@given(INNINGS, INNINGS, st.lists(st.integers(0, 100), max_size=30), st.integers(0, 2**32))
def test_any_partition_into_polls_tells_the_same(
    first: list[str], second: list[str], cuts: list[int], seed: int
) -> None:
    """Polls that repeat, that bring balls twice, and any number of balls between two of them."""
    balls = match_of(first, second)
    chance, listener = random.Random(seed), Listener()
    for cut in sorted(min(cut, len(balls)) for cut in cuts):
        known = balls[:cut]
        shuffled = [*known, *chance.choices(known, k=3)] if known else []
        chance.shuffle(shuffled)
        for _ in range(chance.randint(1, 2)):
            listener.hear(msgspec.structs.replace(feed_of(known), balls=tuple(shuffled)))
    listener.hear(whole(balls))
    assert told_of(
        [event for event in listener.told if event.kind is not EventKind.NEW_BATTER]
    ) == [each for each in at_once(balls) if each[0] != EventKind.NEW_BATTER]
    assert listener.hear(whole(balls)) == []


@settings(max_examples=60)
@given(INNINGS, INNINGS, st.integers(0, 2**32))
def test_a_ball_that_a_poll_lacks_is_waited_for(
    first: list[str], second: list[str], seed: int
) -> None:
    """Those after it are told when it is there, so that the order holds."""
    balls = match_of(first, second)
    chance, listener = random.Random(seed), Listener()
    for cut in range(1, len(balls) + 1, 4):
        known = balls[:cut]
        lost = chance.choice(known)
        listener.hear(
            msgspec.structs.replace(
                feed_of(known), balls=tuple(ball for ball in known if ball is not lost)
            )
        )
        listener.hear(feed_of(known))
    listener.hear(whole(balls))
    events = [event for event in listener.told if event.kind is not EventKind.NEW_BATTER]
    # A wide that is lost together with the ball after it leaves no trace, and is told of when it
    # comes.
    assert sorted(told_of(events)) == sorted(
        each for each in at_once(balls) if each[0] != EventKind.NEW_BATTER
    )
    assert told_of(
        [
            event
            for event in match_events(whole(balls), listener.book)
            if event.kind is not EventKind.NEW_BATTER
        ]
    ) == [each for each in at_once(balls) if each[0] != EventKind.NEW_BATTER]


def test_a_ball_in_the_middle_holds_those_after_it() -> None:
    """Until it comes, and then all are told in order."""
    balls = MatchScript().innings(1, "1 . 4 6 .").balls
    listener = Listener()
    assert (
        listener.hear(msgspec.structs.replace(feed_of(balls), balls=(*balls[:2], *balls[3:]))) == []
    )
    assert [event.kind for event in listener.hear(feed_of(balls))] == [
        EventKind.FOUR,
        EventKind.SIX,
    ]


def test_a_lost_wide_holds_too_since_the_scores_know_of_it() -> None:
    """No number is missing in the over, but a run is."""
    balls = MatchScript().innings(1, "1 . wd 6 .").balls
    listener = Listener()
    assert (
        listener.hear(msgspec.structs.replace(feed_of(balls), balls=(*balls[:2], *balls[3:]))) == []
    )
    assert [event.kind for event in listener.hear(feed_of(balls))] == [EventKind.SIX]


def test_a_ball_that_never_comes_is_given_up() -> None:
    """After a few polls the rest is told, and what comes later still is told as well, once."""
    balls = MatchScript().innings(1, "1 . 4 6 .").balls
    listener = Listener()
    poll = msgspec.structs.replace(feed_of(balls), balls=(*balls[:2], *balls[3:]))
    heard = [listener.hear(poll) for _ in range(MAX_GAP_POLLS + 2)]
    assert [event.kind for new in heard for event in new] == [EventKind.SIX]
    assert heard[MAX_GAP_POLLS]
    assert [event.kind for event in listener.hear(feed_of(balls))] == [EventKind.FOUR]
    assert [event.kind for event in match_events(feed_of(balls), listener.book)] == [
        EventKind.FOUR,
        EventKind.SIX,
    ]


def test_the_last_poll_waits_for_nothing() -> None:
    """What is there is told when no other poll will come."""
    balls = MatchScript().innings(1, "1 . 4 6 .").balls
    listener = Listener()
    poll = msgspec.structs.replace(whole(balls), balls=(*balls[:2], *balls[3:]))
    assert [event.kind for event in listener.hear(poll, is_final=True)] == [
        EventKind.SIX,
        EventKind.INNINGS_END,
        EventKind.MATCH_END,
    ]


def test_penalty_runs_between_balls_delay_no_more_than_once() -> None:
    """Runs that no ball has are given up on once, and from then on nothing waits for them."""
    balls = MatchScript().innings(1, "1 . 4 6 . 1 6 . 6").balls
    listener = Listener()

    def poll(count: int) -> MatchFeed:
        feed = feed_of(balls[:count])
        (card,) = feed.innings
        return msgspec.structs.replace(
            feed, innings=(msgspec.structs.replace(card, runs=card.runs + 5),)
        )

    for _ in range(MAX_GAP_POLLS + 1):
        listener.hear(poll(4))
    assert [event.kind for event in listener.told] == [EventKind.FOUR, EventKind.SIX]
    assert [event.kind for event in listener.hear(poll(7))] == [EventKind.SIX]


def test_a_corrected_ball_tells_what_was_missing_and_nothing_again() -> None:
    """A single that was a four, and a six that was none."""
    play = MatchScript().innings(1, "1 . 6 . 1 .").balls
    fixed = MatchScript().innings(1, "4 . 1 . 1 .").balls
    listener = Listener()
    listener.hear(feed_of(play))
    assert [event.kind for event in listener.hear(feed_of(fixed))] == [EventKind.FOUR]
    assert listener.hear(feed_of(fixed)) == []
    assert [event.kind for event in match_events(feed_of(fixed), listener.book)] == [EventKind.FOUR]


def test_a_wicket_that_was_the_other_batters_is_the_same_wicket() -> None:
    """And the one who was wrongly given out may be out later."""
    balls = MatchScript().innings(1, "1 R . . C .").balls
    wrong = balls[1]
    assert wrong.wicket is not None
    assert wrong.non_striker_id is not None
    corrected = msgspec.structs.replace(
        wrong, wicket=Wicket(wrong.non_striker_id, "other", WicketKind.RUN_OUT)
    )
    later = msgspec.structs.replace(
        balls[4], wicket=Wicket(wrong.wicket.player_out_id, "first", WicketKind.CAUGHT)
    )
    listener = Listener()
    listener.hear(feed_of(balls[:3]))
    assert listener.hear(feed_of([balls[0], corrected, balls[2]])) == []
    new = listener.hear(feed_of([balls[0], corrected, balls[2], balls[3], later]))
    assert [(event.kind, event.subject) for event in new if event.kind is EventKind.WICKET] == [
        (EventKind.WICKET, wrong.wicket.player_out_id)
    ]


def test_a_wicket_that_moves_to_the_next_ball_is_not_told_again() -> None:
    """The same batter is out once."""
    listener = Listener()
    listener.hear(feed_of(MatchScript().innings(1, "1 R . .").balls))
    balls = MatchScript().innings(1, "1 . R .").balls
    moved = msgspec.structs.replace(balls[2], wicket=Wicket("p1.2", "Name", WicketKind.RUN_OUT))
    new = listener.hear(feed_of([*balls[:2], moved, balls[3]]))
    assert [event.kind for event in new if event.kind is EventKind.WICKET] == []


def test_a_withdrawn_ball_is_dropped() -> None:
    """As soon as the service's balls add up to its scores without it."""
    balls = MatchScript().innings(1, "1 . 4 .").balls
    listener = Listener()
    listener.hear(feed_of(balls))
    listener.hear(feed_of(balls[:3]))
    assert listener.book.balls == tuple(balls[:3])


@pytest.mark.parametrize("count", [1, 7, 30])
def test_a_poll_may_bring_only_the_latest_balls(count: int) -> None:
    """A service that tells of a window tells of everything, as long as windows overlap or touch."""
    balls = match_of([". ", "4", "1", "6", "W"] * 20, ["1", "6", "R"] * 10)
    listener = Listener()
    for known in range(count, len(balls) + count, count):
        window = balls[max(0, min(known, len(balls)) - count) : known]
        feed = feed_of(
            balls[:known], MatchStatus.FINISHED if known >= len(balls) else MatchStatus.IN_PLAY
        )
        listener.hear(msgspec.structs.replace(feed, balls=tuple(window)))
    assert told_of(
        [event for event in listener.told if event.kind is not EventKind.NEW_BATTER]
    ) == [each for each in at_once(balls) if each[0] != EventKind.NEW_BATTER]


@settings(max_examples=60)
@given(INNINGS, st.lists(st.tuples(st.integers(0, 60), WORDS), max_size=5))
def test_any_correction_ends_in_the_history_of_the_corrected_match(
    words: list[str], wrong: list[tuple[int, str]]
) -> None:
    """Whatever was said before, and nothing that is still so is told twice."""
    right = MatchScript().innings(1, words).balls
    first = list(words)
    for place, word in wrong:
        if place < len(first):
            first[place] = word
    listener = Listener()
    listener.hear(feed_of(MatchScript().innings(1, first).balls))
    listener.hear(whole(right))
    assert told_of(match_events(whole(right), listener.book)) == at_once(right)
    assert listener.hear(whole(right)) == []
