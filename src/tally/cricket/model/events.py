"""Key events of a match: kinds, ranks and which kinds alert.

An event is identified by its subject, not by the poll that contained it: a batter's fifty is one
event of an innings, however often polls repeat or correct it. `ball_id` is the ball of the event,
or
0 if it was detected from scores only.

Three kinds are not defined by the Laws of Cricket:
- batter_on_fire: at least 30 runs at two or more runs per ball, once per batter and innings;
- bowler_on_fire: a bowler's third wicket in an innings, and each later one;
- new_batter: a batter who did not open the innings comes in.
"""

from enum import StrEnum
from typing import Final

import msgspec


class EventKind(StrEnum):
    """The kinds of events, highest rank first."""

    MATCH_END = "match_end"
    INNINGS_END = "innings_end"
    HAT_TRICK = "hat_trick"
    HUNDRED = "hundred"
    WICKET = "wicket"
    FIFTY = "fifty"
    BOWLER_ON_FIRE = "bowler_on_fire"
    ON_HAT_TRICK = "on_hat_trick"
    CONSECUTIVE_SIXES = "consecutive_sixes"
    NINETIES = "nineties"
    BATTER_ON_FIRE = "batter_on_fire"
    MAIDEN = "maiden"
    SIX = "six"
    FOUR = "four"
    NEW_BATTER = "new_batter"

    @property
    def rank(self) -> int:
        """The rank; 0 is the highest."""
        return _RANK[self]

    @property
    def is_alert(self) -> bool:
        """Whether the event lights up the screen; other events update it silently."""
        return self.rank < ALERT_KINDS


# The number of kinds, from the highest rank, that alert.
ALERT_KINDS: Final = 6
_RANK: Final = {kind: rank for rank, kind in enumerate(EventKind)}
TIER_1: Final = frozenset(
    {
        EventKind.HAT_TRICK,
        EventKind.ON_HAT_TRICK,
        EventKind.CONSECUTIVE_SIXES,
        EventKind.MAIDEN,
        EventKind.SIX,
        EventKind.FOUR,
    }
)
# Events that are identified by their ball: a correction of the player is still the same event.
BALL_EVENT_KINDS: Final = (TIER_1 - {EventKind.MAIDEN}) | {EventKind.WICKET}


class AlertChoice(StrEnum):
    """Which key events alert a follower. The others update the display silently."""

    ALL = "all"
    MILESTONES = "milestones"
    RESULT = "result"

    def includes(self, kind: EventKind) -> bool:
        """Whether an event of this kind alerts."""
        return kind in _ALERTING_KINDS[self]


_ALERTING_KINDS: Final = {
    AlertChoice.ALL: frozenset(kind for kind in EventKind if kind.is_alert),
    AlertChoice.MILESTONES: frozenset(
        kind for kind in EventKind if kind.is_alert and kind is not EventKind.WICKET
    ),
    AlertChoice.RESULT: frozenset({EventKind.MATCH_END}),
}


class KeyEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One event, with the fields of all kinds, because the struct is stored and streamed as JSON.

    `over` and `number` locate the ball; `score` is the team's score after it. `player` is the name
    of the batter (for a wicket, the batter who is out) or bowler, `other` that of the opponent.
    `runs` and `balls` belong to the batter, or to the team at the end of an innings. `count` is the
    number in a row or the number of wickets. `reason` is the kind of wicket, why an innings ended,
    or the result. `at` is the time of publication in milliseconds, 0 before it.
    """

    kind: EventKind
    innings: int
    subject: str = ""
    ball_id: int = 0
    over: int = 0
    number: int = 0
    team_id: str = ""
    score: str = ""
    player: str = ""
    other: str = ""
    runs: int = 0
    balls: int = 0
    count: int = 0
    reason: str = ""
    is_super_over: bool = False
    at: int = 0

    @property
    def identity(self) -> tuple[str, int, str]:
        """The identity of the event, which is the same in every poll."""
        return self.kind, 0 if self.kind is EventKind.MATCH_END else self.innings, self.subject
