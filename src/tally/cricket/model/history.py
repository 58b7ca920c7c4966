"""Derives all events of a match, and finds those that were not published yet.

`match_events` is recomputed for every poll, so corrections need no special rule.
`find_new_events` compares the result with the published events, so that no event is published
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

# Returns the key by which two events are the same; None if the matcher does not apply.
EventMatcher: TypeAlias = Callable[[KeyEvent], Hashable | None]


def match_events(feed: MatchFeed, log: BallLog) -> list[KeyEvent]:
    """Return all events so far, in order of play.

    Balls determine when an event happened; scores add events that no ball contains.
    """
    balls = log.released_balls
    super_overs = frozenset(innings.number for innings in feed.innings if innings.is_super_over)
    by_innings: dict[int, list[KeyEvent]] = {}
    names = {line.player_id: line.name for innings in feed.innings for line in innings.batters}
    for event in BallEventDetector(super_overs, names).detect(balls):
        by_innings.setdefault(event.innings, []).append(event)
    last_with_balls = max((ball.innings for ball in balls), default=0)
    scores = {innings.number: innings for innings in feed.innings}
    events: list[KeyEvent] = []
    is_settled = True
    for number in sorted({*scores, *by_innings}):
        events += by_innings.get(number, ())
        innings = scores.get(number)
        if innings is None:
            continue
        is_settled = feed.balls is None or log.is_settled(innings)
        if is_settled:
            events += _unknown(innings_events(innings), events)
        if (is_settled or last_with_balls > number) and is_innings_over(feed, innings):
            events.append(innings_end_event(feed, innings))
    if feed.status.is_over and is_settled:
        events.append(match_end_event(feed))
    return list(_without_repeats(events))


def _unknown(implied: Iterable[KeyEvent], events: Sequence[KeyEvent]) -> list[KeyEvent]:
    known = {event.identity for event in events}
    return [event for event in implied if event.identity not in known]


def _without_repeats(events: Iterable[KeyEvent]) -> Iterator[KeyEvent]:
    seen = set()
    for event in events:
        key = (event.identity, event.ball_id if event.kind in BALL_EVENT_KINDS else 0)
        if key not in seen:
            seen.add(key)
            yield event


def find_new_events(events: Sequence[KeyEvent], published: Iterable[KeyEvent]) -> list[KeyEvent]:
    """Return the events that were not published, in their order.

    A correction may change the batter or the ball of a wicket: it is the same wicket if either is
    unchanged. A published event matches one event only, because a batter who was wrongly given out
    may be out later.
    """
    unmatched, remaining = list(published), list(events)
    for matcher in (_same_ball_and_subject, _same_ball, _same_subject):
        unmatched, remaining = _unmatched(unmatched, remaining, matcher)
    return remaining


def _same_ball_and_subject(event: KeyEvent) -> Hashable | None:
    return (event.identity, event.ball_id) if event.ball_id else None


def _same_ball(event: KeyEvent) -> Hashable | None:
    is_ball_event = event.kind in BALL_EVENT_KINDS and event.ball_id
    return (event.kind, event.ball_id) if is_ball_event else None


def _same_subject(event: KeyEvent) -> Hashable | None:
    has_subject = event.kind is EventKind.WICKET or event.kind not in BALL_EVENT_KINDS
    return event.identity if has_subject else None


def _unmatched(
    published: list[KeyEvent], events: list[KeyEvent], matcher: EventMatcher
) -> tuple[list[KeyEvent], list[KeyEvent]]:
    """Pair published events with matching events; return the rest of both."""
    candidates: dict[Hashable, list[KeyEvent]] = {}
    unmatched: list[KeyEvent] = []
    for event in published:
        key = matcher(event)
        (unmatched if key is None else candidates.setdefault(key, [])).append(event)
    remaining = []
    for event in events:
        key = matcher(event)
        if key is not None and candidates.get(key):
            candidates[key].pop()
        else:
            remaining.append(event)
    return unmatched + [event for group in candidates.values() for event in group], remaining
