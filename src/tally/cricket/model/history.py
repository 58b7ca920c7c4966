"""All that has happened in a match, in order of play, as the feed and the book have it now; and what of it has not been told yet.

`history` is worked out anew with every poll, so a correction needs no rule of its own: it changes
what follows from the balls. `untold` compares with what has been told, and never tells of anything
twice.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

from tally.cricket.model.ball_log import BallLog
from tally.cricket.model.events import BALL_EVENT_KINDS, EventKind, KeyEvent
from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.tier0 import (
    innings_end_event,
    innings_events,
    is_innings_over,
    match_end_event,
)
from tally.cricket.model.tier1 import BallEventDetector


def match_events(feed: MatchFeed, book: BallLog) -> list[KeyEvent]:
    """Every event so far.

    Where there are balls they say when it was; the scores add what the balls never told.
    """
    told = book.told
    super_overs = frozenset(each.number for each in feed.innings if each.is_super_over)
    by_innings: dict[int, list[KeyEvent]] = {}
    names = {line.player_id: line.name for innings in feed.innings for line in innings.batters}
    for event in BallEventDetector(super_overs, names).watch(told):
        by_innings.setdefault(event.innings, []).append(event)
    with_balls = {ball.innings for ball in told}
    scores = {each.number: each for each in feed.innings}
    events: list[KeyEvent] = []
    are_settled = True
    for number in sorted({*scores, *by_innings}):
        events += by_innings.get(number, ())
        innings = scores.get(number)
        if innings is None:
            continue
        are_settled = feed.balls is None or book.is_settled(innings)
        if are_settled:
            events += _unknown(innings_events(innings), events)
        if (are_settled or max(with_balls, default=0) > number) and is_innings_over(feed, innings):
            events.append(innings_end_event(feed, innings))
    if feed.status.is_over and are_settled:
        events.append(match_end_event(feed))
    return list(_first_of_each(events))


def _unknown(implied: Iterable[KeyEvent], events: Sequence[KeyEvent]) -> list[KeyEvent]:
    known = {event.identity for event in events}
    return [event for event in implied if event.identity not in known]


def _first_of_each(events: Iterable[KeyEvent]) -> Iterator[KeyEvent]:
    seen = set()
    for event in events:
        key = (event.identity, event.ball_id if event.kind in BALL_EVENT_KINDS else 0)
        if key not in seen:
            seen.add(key)
            yield event


def find_new_events(events: Sequence[KeyEvent], told: Iterable[KeyEvent]) -> list[KeyEvent]:
    """Those of `events` that have not been told, in their order.

    A wicket is the same one if its ball is, though a correction says that the other batter was out,
    and also if its batter is, though it says that it was another ball. What has been told stands
    for one event only: the batter who was wrongly given out may be out later.
    """
    left, remaining = list(told), list(events)
    for likeness in (_same_ball_and_subject, _same_ball, _same_subject):
        left, remaining = _unmatched(left, remaining, likeness)
    return remaining


EventMatcher: TypeAlias = Callable[[KeyEvent], Hashable | None]


def _same_ball_and_subject(event: KeyEvent) -> Hashable | None:
    return (event.identity, event.ball_id) if event.ball_id else None


def _same_ball(event: KeyEvent) -> Hashable | None:
    return (event.kind, event.ball_id) if event.kind in BALL_EVENT_KINDS and event.ball_id else None


def _same_subject(event: KeyEvent) -> Hashable | None:
    return (
        event.identity
        if event.kind is EventKind.WICKET or event.kind not in BALL_EVENT_KINDS
        else None
    )


def _unmatched(
    told: list[KeyEvent], events: list[KeyEvent], likeness: EventMatcher
) -> tuple[list[KeyEvent], list[KeyEvent]]:
    """What is left of both when each that was told has been paired with one that is like it."""
    waiting: dict[Hashable, list[KeyEvent]] = {}
    unlike: list[KeyEvent] = []
    for event in told:
        key = likeness(event)
        (unlike if key is None else waiting.setdefault(key, [])).append(event)
    remaining = []
    for event in events:
        key = likeness(event)
        if key is not None and waiting.get(key):
            waiting[key].pop()
        else:
            remaining.append(event)
    return unlike + [event for group in waiting.values() for event in group], remaining
