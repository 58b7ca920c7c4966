"""The events of a match and their order do not depend on how polls divide it."""

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


class EventRecorder:
    """Processes polls and records the published events."""

    def __init__(self) -> None:
        self.ball_log = BallLog()
        self.published: list[KeyEvent] = []

    def poll(self, feed: MatchFeed, *, is_final: bool = False) -> list[KeyEvent]:
        self.ball_log = decode_ball_log(
            encode_ball_log(merge_poll(self.ball_log, feed, is_final=is_final))
        )
        new = find_new_events(match_events(feed, self.ball_log), self.published)
        self.published += new
        return new


def whole(balls: Sequence[Ball]) -> MatchFeed:
    return feed_of(balls, MatchStatus.FINISHED)


def event_keys(events: Sequence[KeyEvent]) -> list[tuple[str, int, str, int]]:
    return [(event.kind, event.innings, event.subject, event.ball_id) for event in events]


def match_of(first: list[str], second: list[str]) -> list[Ball]:
    return MatchScript().innings(1, first).innings(2, second).balls


def events_in_one_poll(balls: Sequence[Ball]) -> list[tuple[str, int, str, int]]:
    recorder = EventRecorder()
    recorder.poll(whole(balls))
    return event_keys(recorder.published)


@settings(max_examples=60)
@given(INNINGS, INNINGS, st.lists(st.integers(0, 100), max_size=30), st.integers(0, 2**32))
def test_any_partition_into_polls_has_the_same_events(
    first: list[str], second: list[str], cuts: list[int], seed: int
) -> None:
    """Polls may repeat, contain balls twice and have any number of balls between them."""
    balls = match_of(first, second)
    chance, recorder = random.Random(seed), EventRecorder()
    for cut in sorted(min(cut, len(balls)) for cut in cuts):
        known = balls[:cut]
        shuffled = [*known, *chance.choices(known, k=3)] if known else []
        chance.shuffle(shuffled)
        for _ in range(chance.randint(1, 2)):
            recorder.poll(msgspec.structs.replace(feed_of(known), balls=tuple(shuffled)))
    recorder.poll(whole(balls))
    assert event_keys(
        [event for event in recorder.published if event.kind is not EventKind.NEW_BATTER]
    ) == [poll for poll in events_in_one_poll(balls) if poll[0] != EventKind.NEW_BATTER]
    assert recorder.poll(whole(balls)) == []


@settings(max_examples=60)
@given(INNINGS, INNINGS, st.integers(0, 2**32))
def test_a_missing_ball_holds_back_later_events(
    first: list[str], second: list[str], seed: int
) -> None:
    """Later events follow when the ball arrives, so that the order is preserved."""
    balls = match_of(first, second)
    chance, recorder = random.Random(seed), EventRecorder()
    for cut in range(1, len(balls) + 1, 4):
        known = balls[:cut]
        lost = chance.choice(known)
        recorder.poll(
            msgspec.structs.replace(
                feed_of(known), balls=tuple(ball for ball in known if ball is not lost)
            )
        )
        recorder.poll(feed_of(known))
    recorder.poll(whole(balls))
    events = [event for event in recorder.published if event.kind is not EventKind.NEW_BATTER]
    # A wide that is lost with the next ball is undetectable; it is published when it arrives.
    assert sorted(event_keys(events)) == sorted(
        poll for poll in events_in_one_poll(balls) if poll[0] != EventKind.NEW_BATTER
    )
    assert event_keys(
        [
            event
            for event in match_events(whole(balls), recorder.ball_log)
            if event.kind is not EventKind.NEW_BATTER
        ]
    ) == [poll for poll in events_in_one_poll(balls) if poll[0] != EventKind.NEW_BATTER]


def test_a_gap_in_the_middle_holds_back_later_balls() -> None:
    """When the ball arrives, all events follow in order."""
    balls = MatchScript().innings(1, "1 . 4 6 .").balls
    recorder = EventRecorder()
    assert (
        recorder.poll(msgspec.structs.replace(feed_of(balls), balls=(*balls[:2], *balls[3:]))) == []
    )
    assert [event.kind for event in recorder.poll(feed_of(balls))] == [
        EventKind.FOUR,
        EventKind.SIX,
    ]


def test_a_missing_wide_is_detected_from_the_scores() -> None:
    """No ball number is missing, but a run is."""
    balls = MatchScript().innings(1, "1 . wd 6 .").balls
    recorder = EventRecorder()
    assert (
        recorder.poll(msgspec.structs.replace(feed_of(balls), balls=(*balls[:2], *balls[3:]))) == []
    )
    assert [event.kind for event in recorder.poll(feed_of(balls))] == [EventKind.SIX]


def test_a_ball_that_stays_missing_is_ignored() -> None:
    """After some polls the rest is published; a late ball is published once."""
    balls = MatchScript().innings(1, "1 . 4 6 .").balls
    recorder = EventRecorder()
    poll = msgspec.structs.replace(feed_of(balls), balls=(*balls[:2], *balls[3:]))
    results = [recorder.poll(poll) for _ in range(MAX_GAP_POLLS + 2)]
    assert [event.kind for new in results for event in new] == [EventKind.SIX]
    assert results[MAX_GAP_POLLS]
    assert [event.kind for event in recorder.poll(feed_of(balls))] == [EventKind.FOUR]
    assert [event.kind for event in match_events(feed_of(balls), recorder.ball_log)] == [
        EventKind.FOUR,
        EventKind.SIX,
    ]


def test_the_final_poll_releases_everything() -> None:
    """All known balls are published when there is no later poll."""
    balls = MatchScript().innings(1, "1 . 4 6 .").balls
    recorder = EventRecorder()
    poll = msgspec.structs.replace(whole(balls), balls=(*balls[:2], *balls[3:]))
    assert [event.kind for event in recorder.poll(poll, is_final=True)] == [
        EventKind.SIX,
        EventKind.INNINGS_END,
        EventKind.MATCH_END,
    ]


def test_penalty_runs_without_a_ball_delay_events_once() -> None:
    """After the gap was ignored once, it delays nothing again."""
    balls = MatchScript().innings(1, "1 . 4 6 . 1 6 . 6").balls
    recorder = EventRecorder()

    def poll(count: int) -> MatchFeed:
        feed = feed_of(balls[:count])
        (card,) = feed.innings
        return msgspec.structs.replace(
            feed, innings=(msgspec.structs.replace(card, runs=card.runs + 5),)
        )

    for _ in range(MAX_GAP_POLLS + 1):
        recorder.poll(poll(4))
    assert [event.kind for event in recorder.published] == [EventKind.FOUR, EventKind.SIX]
    assert [event.kind for event in recorder.poll(poll(7))] == [EventKind.SIX]


def test_a_corrected_ball_adds_missing_events_and_repeats_none() -> None:
    """A single becomes a four, and a six is withdrawn."""
    play = MatchScript().innings(1, "1 . 6 . 1 .").balls
    fixed = MatchScript().innings(1, "4 . 1 . 1 .").balls
    recorder = EventRecorder()
    recorder.poll(feed_of(play))
    assert [event.kind for event in recorder.poll(feed_of(fixed))] == [EventKind.FOUR]
    assert recorder.poll(feed_of(fixed)) == []
    assert [event.kind for event in match_events(feed_of(fixed), recorder.ball_log)] == [
        EventKind.FOUR
    ]


def test_a_wicket_with_a_corrected_batter_is_the_same_wicket() -> None:
    """The batter who was wrongly given out may be out later."""
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
    recorder = EventRecorder()
    recorder.poll(feed_of(balls[:3]))
    assert recorder.poll(feed_of([balls[0], corrected, balls[2]])) == []
    new = recorder.poll(feed_of([balls[0], corrected, balls[2], balls[3], later]))
    assert [(event.kind, event.subject) for event in new if event.kind is EventKind.WICKET] == [
        (EventKind.WICKET, wrong.wicket.player_out_id)
    ]


def test_a_wicket_that_moves_to_the_next_ball_is_not_repeated() -> None:
    """A batter is out once."""
    recorder = EventRecorder()
    recorder.poll(feed_of(MatchScript().innings(1, "1 R . .").balls))
    balls = MatchScript().innings(1, "1 . R .").balls
    moved = msgspec.structs.replace(balls[2], wicket=Wicket("p1.2", "Name", WicketKind.RUN_OUT))
    new = recorder.poll(feed_of([*balls[:2], moved, balls[3]]))
    assert [event.kind for event in new if event.kind is EventKind.WICKET] == []


def test_a_withdrawn_ball_is_dropped() -> None:
    """It is dropped as soon as the remaining balls add up to the scores."""
    balls = MatchScript().innings(1, "1 . 4 .").balls
    recorder = EventRecorder()
    recorder.poll(feed_of(balls))
    recorder.poll(feed_of(balls[:3]))
    assert recorder.ball_log.balls == tuple(balls[:3])


@pytest.mark.parametrize("count", [1, 7, 30])
def test_a_poll_may_contain_only_the_latest_balls(count: int) -> None:
    """Windows of balls are sufficient as long as they overlap or touch."""
    balls = match_of([". ", "4", "1", "6", "W"] * 20, ["1", "6", "R"] * 10)
    recorder = EventRecorder()
    for known in range(count, len(balls) + count, count):
        window = balls[max(0, min(known, len(balls)) - count) : known]
        feed = feed_of(
            balls[:known], MatchStatus.FINISHED if known >= len(balls) else MatchStatus.IN_PLAY
        )
        recorder.poll(msgspec.structs.replace(feed, balls=tuple(window)))
    assert event_keys(
        [event for event in recorder.published if event.kind is not EventKind.NEW_BATTER]
    ) == [poll for poll in events_in_one_poll(balls) if poll[0] != EventKind.NEW_BATTER]


@settings(max_examples=60)
@given(INNINGS, st.lists(st.tuples(st.integers(0, 60), WORDS), max_size=5))
def test_corrections_lead_to_the_events_of_the_corrected_match(
    words: list[str], wrong: list[tuple[int, str]]
) -> None:
    """Events that remain valid are not published twice."""
    right = MatchScript().innings(1, words).balls
    first = list(words)
    for place, word in wrong:
        if place < len(first):
            first[place] = word
    recorder = EventRecorder()
    recorder.poll(feed_of(MatchScript().innings(1, first).balls))
    recorder.poll(whole(right))
    assert event_keys(match_events(whole(right), recorder.ball_log)) == events_in_one_poll(right)
    assert recorder.poll(whole(right)) == []
