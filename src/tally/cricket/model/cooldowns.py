"""Selects the event to display: not stale, not in cooldown, highest rank.

All events are recorded, but a Lock Screen has one line for an event. An event is stale if later
play makes it irrelevant: a fifty after the hundred, or a four after another over. A cooldown keeps
an event from being displayed again for the same player, over or innings.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import Ball, InningsFeed
from tally.cricket.model.laws import balls_in

COOLDOWN_SECONDS: Final[Mapping[EventKind, int]] = MappingProxyType(
    {
        EventKind.MATCH_END: 86_400,
        EventKind.INNINGS_END: 86_400,
        EventKind.HAT_TRICK: 30,
        EventKind.HUNDRED: 86_400,
        EventKind.WICKET: 600,
        EventKind.FIFTY: 86_400,
        EventKind.BOWLER_ON_FIRE: 120,
        EventKind.ON_HAT_TRICK: 60,
        EventKind.CONSECUTIVE_SIXES: 30,
        EventKind.NINETIES: 86_400,
        EventKind.BATTER_ON_FIRE: 86_400,
        EventKind.MAIDEN: 3_600,
        EventKind.SIX: 45,
        EventKind.FOUR: 45,
        EventKind.NEW_BATTER: 86_400,
    }
)
# The number of later deliveries after which an event is stale.
STALE_ALERT_DELIVERIES: Final = 12
STALE_QUIET_DELIVERIES: Final = 6
# Events of a batter, with the later events that make them stale.
_SUPERSEDED_BY: Final[Mapping[EventKind, frozenset[EventKind]]] = MappingProxyType(
    {
        EventKind.FIFTY: frozenset({EventKind.NINETIES, EventKind.HUNDRED}),
        EventKind.NINETIES: frozenset({EventKind.HUNDRED, EventKind.WICKET}),
        EventKind.BATTER_ON_FIRE: frozenset(
            {EventKind.FIFTY, EventKind.NINETIES, EventKind.HUNDRED, EventKind.WICKET}
        ),
        EventKind.NEW_BATTER: frozenset({EventKind.WICKET}),
    }
)


@dataclass(frozen=True, slots=True)
class EventContext:
    """All events and balls so far and the current innings; `is_first_poll` marks a new match."""

    events: Sequence[KeyEvent]
    balls: Sequence[Ball] = ()
    innings: InningsFeed | None = None
    is_first_poll: bool = False


def cooldown_key(event: KeyEvent) -> str:
    """Return the key of an event's cooldown: its kind, innings and subject."""
    return f"{event.kind}:{event.innings}:{event.subject}"


def is_stale(event: KeyEvent, context: EventContext) -> bool:
    """Whether later play makes the event irrelevant."""
    if event.kind is EventKind.MATCH_END:
        return False
    if any(other.kind is EventKind.MATCH_END for other in context.events):
        return True
    innings = context.innings
    is_past = innings is not None and event.innings < innings.number
    if event.kind is EventKind.INNINGS_END:
        return is_past and innings is not None and balls_in(innings.overs) >= STALE_ALERT_DELIVERIES
    if is_past or (context.is_first_poll and not event.ball_id):
        return True
    return _is_superseded(event, context.events) or _is_old(event, context.balls)


def _is_superseded(event: KeyEvent, events: Sequence[KeyEvent]) -> bool:
    superseding = _SUPERSEDED_BY.get(event.kind, frozenset())
    return any(
        other.kind in superseding
        and other.innings == event.innings
        and other.subject == event.subject
        for other in events
    )


def _is_old(event: KeyEvent, balls: Sequence[Ball]) -> bool:
    if not event.ball_id:
        return False
    later = len(balls) - bisect_right(balls, event.ball_id, key=lambda ball: ball.id)
    return later >= (STALE_ALERT_DELIVERIES if event.kind.is_alert else STALE_QUIET_DELIVERIES)


def select_event(
    new: Sequence[KeyEvent], context: EventContext, cooldowns: Mapping[str, int], now: int
) -> KeyEvent | None:
    """Return the new event to display; of two with the same rank, the later one.

    `now` is in milliseconds.
    """
    eligible = [
        event
        for event in new
        if not is_stale(event, context) and cooldowns.get(cooldown_key(event), 0) <= now
    ]
    return min(reversed(eligible), key=lambda event: event.kind.rank, default=None)


def update_cooldowns(
    cooldowns: Mapping[str, int], displayed: KeyEvent | None, now: int
) -> dict[str, int]:
    """Drop expired cooldowns and start that of the displayed event."""
    active = {key: until for key, until in cooldowns.items() if until > now}
    if displayed is not None:
        active[cooldown_key(displayed)] = now + COOLDOWN_SECONDS[displayed.kind] * 1000
    return active
