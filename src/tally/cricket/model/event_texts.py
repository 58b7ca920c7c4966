"""Texts of events: a title and a sentence, and the mood of an event from a team's view."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from tally.cricket.model.events import EventKind, KeyEvent

_END_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "all_out": "all out",
        "target_reached": "target reached",
        "declared": "declared",
        "overs_complete": "innings complete",
        "closed": "innings closed",
    }
)
# Good for the bowling team; the others are good for the batting team.
BOWLING_SUCCESSES: Final = frozenset(
    {
        EventKind.WICKET,
        EventKind.HAT_TRICK,
        EventKind.ON_HAT_TRICK,
        EventKind.BOWLER_ON_FIRE,
        EventKind.MAIDEN,
    }
)
_NEUTRAL_KINDS: Final = frozenset({EventKind.INNINGS_END, EventKind.NEW_BATTER})


def event_title(event: KeyEvent) -> str:
    """Return a short title."""
    if event.kind is EventKind.CONSECUTIVE_SIXES:
        return f"{event.count} sixes in a row"
    if event.kind is EventKind.BOWLER_ON_FIRE:
        return f"{event.count} wickets"
    return _TITLES[event.kind]


def event_sentence(event: KeyEvent) -> str:
    """Return one sentence that does not repeat the title."""
    return _SENTENCES[event.kind](event).strip()


def event_mood(event: KeyEvent, view: str, winner: str | None) -> str:
    """Return "for", "against" or "neutral" for the team `view`; `winner` is that of the match."""
    if event.kind is EventKind.MATCH_END:
        return "neutral" if not winner else "for" if winner == view else "against"
    if event.kind in _NEUTRAL_KINDS:
        return "neutral"
    is_batting = event.team_id == view
    return "for" if is_batting != (event.kind in BOWLING_SUCCESSES) else "against"


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
    return f"{event.player} {event.score}{over}, {_END_REASONS.get(event.reason, event.reason)}"


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
