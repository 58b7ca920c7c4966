"""Which one event of a poll is shown: not one that is stale, not one that was shown a moment ago, and then the highest in rank.

All events are recorded; this is about the one line of a Lock Screen. Staleness looks at what came
after: a fifty is old news when the hundred is there, and a four when an over has been bowled since.
Cooldowns look at what was shown: a batter's second four within a minute is not shown again, and
nothing is shown twice for the same player or over.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import Ball, InningsFeed
from tally.cricket.model.laws import balls_in

# Seconds in which the same is not shown again, for the same player, over or innings.
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
# Deliveries after which an event is old news, for those that alert and for the quiet ones.
OLD_ALERT: Final = 12
OLD_QUIET: Final = 6
# What a batter has reached, and by what it is overtaken.
_OVERTAKEN: Final[Mapping[EventKind, frozenset[EventKind]]] = MappingProxyType(
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
    """What surrounds the new events: all events and balls so far, the innings played now, and whether the match is new."""

    events: Sequence[KeyEvent]
    balls: Sequence[Ball] = ()
    innings: InningsFeed | None = None
    is_first_sight: bool = False


def cooldown_key(event: KeyEvent) -> str:
    """What must cool down: the kind, for a player, an over or an innings.

    One more wicket or six in a row is another.
    """
    return f"{event.kind}:{event.innings}:{event.subject}"


def is_stale(event: KeyEvent, scene: EventContext) -> bool:
    """Whether what came later makes `event` old news."""
    if event.kind is EventKind.MATCH_END:
        return False
    if any(other.kind is EventKind.MATCH_END for other in scene.events):
        return True
    is_past = scene.innings is not None and event.innings < scene.innings.number
    if event.kind is EventKind.INNINGS_END:
        return is_past and scene.innings is not None and balls_in(scene.innings.overs) >= OLD_ALERT
    if is_past or (scene.is_first_sight and not event.ball_id):
        return True
    return _is_overtaken(event, scene.events) or _is_old(event, scene.balls)


def _is_overtaken(event: KeyEvent, events: Sequence[KeyEvent]) -> bool:
    overtaking = _OVERTAKEN.get(event.kind, frozenset())
    return any(
        other.kind in overtaking
        and other.innings == event.innings
        and other.subject == event.subject
        for other in events
    )


def _is_old(event: KeyEvent, balls: Sequence[Ball]) -> bool:
    if not event.ball_id:
        return False
    since = len(balls) - bisect_right(balls, event.ball_id, key=lambda ball: ball.id)
    return since >= (OLD_ALERT if event.kind.is_alert else OLD_QUIET)


def select_event(
    new: Sequence[KeyEvent], scene: EventContext, cooldowns: Mapping[str, int], now: int
) -> KeyEvent | None:
    """The event to show, if there is one; `now` in milliseconds.

    Of two of a kind, the later one.
    """
    fit = [
        event
        for event in new
        if not is_stale(event, scene) and cooldowns.get(cooldown_key(event), 0) <= now
    ]
    return min(reversed(fit), key=lambda event: event.kind.rank, default=None)


def update_cooldowns(
    cooldowns: Mapping[str, int], shown: KeyEvent | None, now: int
) -> dict[str, int]:
    """The cooldowns from now on: what is over is forgotten, and what is shown must cool down."""
    left = {key: until for key, until in cooldowns.items() if until > now}
    if shown is not None:
        left[cooldown_key(shown)] = now + COOLDOWN_SECONDS[shown.kind] * 1000
    return left
