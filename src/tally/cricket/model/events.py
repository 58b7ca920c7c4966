"""What happens in a match that people want to hear of: kinds of events, their rank, and which of them light the screen.

An event is known by what it is about, not by the poll that brought it: a batter's fifty is one
event of an innings, however often the feed tells of it and whatever is corrected meanwhile.
`subject` holds what it is about, `ball_id` the ball that it fell on, or 0 where the scores alone
tell of it.

Beyond the laws of cricket, this is what three of the kinds mean here:
- batter_on_fire: thirty runs or more at two or more runs a ball, once for each batter and innings;
- bowler_on_fire: a bowler's third wicket in an innings, and each one after it;
- new_batter: somebody comes in who did not open the innings.
"""

from enum import StrEnum
from typing import Final

import msgspec


class EventKind(StrEnum):
    """Highest rank first."""

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
        """0 is the most important."""
        return _RANK[self]

    @property
    def is_alert(self) -> bool:
        """Lights the screen; the others change what it shows, quietly."""
        return self.rank < ALERTING


# So many kinds, from the top, alert.
ALERTING: Final = 6
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
# An event of these kinds belongs to its ball: if a correction changes whose it was, it is still the
# same event.
BALL_EVENT_KINDS: Final = (TIER_1 - {EventKind.MAIDEN}) | {EventKind.WICKET}


class KeyEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One event.

    `over` and `number` say where it fell, `score` how the side stood then, the rest depends on the
    kind.

    `player` is whom it is about by name: the batter (who is out, for a wicket) or the bowler;
    `other` is the opponent. `runs` and `balls` are a batter's, or a side's at the end of an
    innings; `count` is how many in a row, or how many wickets. `reason` is how somebody was out,
    why an innings ended, or the result.
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

    @property
    def identity(self) -> tuple[str, int, str]:
        """The same for every telling of the event."""
        return self.kind, 0 if self.kind is EventKind.MATCH_END else self.innings, self.subject
