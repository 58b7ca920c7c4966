"""What an event says to people: a title and a sentence.

From a side's view only the mood differs: for us, or against us.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from tally.cricket.model.events import EventKind, KeyEvent

_ENDED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "all_out": "all out",
        "target_reached": "target reached",
        "declared": "declared",
        "overs_complete": "innings complete",
        "closed": "innings closed",
    }
)
# With these the bowling side is glad; with the others the batting side is.
FOR_THE_BOWLERS: Final = frozenset(
    {
        EventKind.WICKET,
        EventKind.HAT_TRICK,
        EventKind.ON_HAT_TRICK,
        EventKind.BOWLER_ON_FIRE,
        EventKind.MAIDEN,
    }
)
_NEITHER: Final = frozenset({EventKind.INNINGS_END, EventKind.NEW_BATTER})


def event_title(event: KeyEvent) -> str:
    """A few words, for the largest line."""
    if event.kind is EventKind.CONSECUTIVE_SIXES:
        return f"{event.count} sixes in a row"
    if event.kind is EventKind.BOWLER_ON_FIRE:
        return f"{event.count} wickets"
    return _TITLES[event.kind]


def event_sentence(event: KeyEvent) -> str:
    """One sentence, without the title's words."""
    return _SENTENCES[event.kind](event).strip()


def event_mood(event: KeyEvent, view: str, winner: str | None) -> str:
    """for, against or neutral, as the side `view` sees it; `winner` is that of the match."""
    if event.kind is EventKind.MATCH_END:
        side = winner or ""
        return "neutral" if not side else "for" if side == view else "against"
    if event.kind in _NEITHER:
        return "neutral"
    is_batting = event.team_id == view
    return "for" if is_batting != (event.kind in FOR_THE_BOWLERS) else "against"


def _batter(event: KeyEvent) -> str:
    return f"{event.player} {event.runs} ({event.balls})"


def _boundary(event: KeyEvent) -> str:
    return (
        f"{event.player} off {event.other}, {event.score}"
        if event.other
        else f"{event.player}, {event.score}"
    )


def _wicket(event: KeyEvent) -> str:
    by = f", {event.other}" if event.other else ""
    return f"{_batter(event)} {event.reason}{by}. {event.score}"


def _innings_end(event: KeyEvent) -> str:
    over = f" ({event.over}.{event.number})"
    return f"{event.player} {event.score}{over}, {_ENDED.get(event.reason, event.reason)}"


_TITLES: Final[Mapping[EventKind, str]] = MappingProxyType(
    {
        EventKind.MATCH_END: "Match over",
        EventKind.INNINGS_END: "End of innings",
        EventKind.HAT_TRICK: "HAT-TRICK!",
        EventKind.HUNDRED: "HUNDRED!",
        EventKind.WICKET: "WICKET!",
        EventKind.FIFTY: "FIFTY!",
        EventKind.ON_HAT_TRICK: "On a hat-trick",
        EventKind.NINETIES: "In the nineties",
        EventKind.BATTER_ON_FIRE: "On fire",
        EventKind.MAIDEN: "Maiden over",
        EventKind.SIX: "SIX!",
        EventKind.FOUR: "FOUR!",
        EventKind.NEW_BATTER: "New batter",
    }
)
_SENTENCES: Final[Mapping[EventKind, Callable[[KeyEvent], str]]] = MappingProxyType(
    {
        EventKind.MATCH_END: lambda event: event.reason,
        EventKind.INNINGS_END: _innings_end,
        EventKind.HAT_TRICK: lambda event: (
            f"{event.player}, {event.count} wickets in {event.count} balls. {event.score}"
        ),
        EventKind.HUNDRED: _batter,
        EventKind.WICKET: _wicket,
        EventKind.FIFTY: _batter,
        EventKind.BOWLER_ON_FIRE: lambda event: f"{event.player} {event.count}/{event.runs}",
        EventKind.ON_HAT_TRICK: lambda event: f"{event.player}, two in two. {event.score}",
        EventKind.CONSECUTIVE_SIXES: _boundary,
        EventKind.NINETIES: _batter,
        EventKind.BATTER_ON_FIRE: _batter,
        EventKind.MAIDEN: lambda event: f"{event.player}, {event.score}",
        EventKind.SIX: _boundary,
        EventKind.FOUR: _boundary,
        EventKind.NEW_BATTER: lambda event: f"{event.player} comes in at {event.score}",
    }
)
