"""What one poll says about one match.

The gateway to the score service makes these structs, and everything behind it (detectors,
scorecards, display states) reads them: nobody else knows how the service spells a status, a wicket
or an over. All of it is frozen and compares by value, so two polls that say the same are equal but
for `received_at`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import msgspec


class MatchStatus(Enum):
    """Where a match stands, whatever words the service has for it."""

    NOT_STARTED = "not_started"
    IN_PLAY = "in_play"
    INNINGS_BREAK = "innings_break"
    BREAK = "break"  # lunch, tea, dinner, stumps
    DELAYED = "delayed"  # rain, bad light, a late start
    POSTPONED = "postponed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    FINISHED = "finished"

    @property
    def is_over(self) -> bool:
        """No ball will be bowled any more, at least not on this day."""
        return self in _OVER

    @property
    def is_running(self) -> bool:
        """The match has begun and goes on, though it may pause."""
        return self in _RUNNING


_OVER: Final = frozenset(
    {MatchStatus.POSTPONED, MatchStatus.CANCELLED, MatchStatus.ABANDONED, MatchStatus.FINISHED}
)
_RUNNING: Final = frozenset({MatchStatus.IN_PLAY, MatchStatus.INNINGS_BREAK, MatchStatus.BREAK})


class WicketKind(Enum):
    """How a batter went. The value is what a scorecard prints."""

    BOWLED = "bowled"
    CAUGHT = "caught"
    CAUGHT_AND_BOWLED = "caught and bowled"
    LBW = "lbw"
    STUMPED = "stumped"
    HIT_WICKET = "hit wicket"
    RUN_OUT = "run out"
    OBSTRUCTING = "obstructing the field"
    HANDLED_BALL = "handled the ball"
    HIT_TWICE = "hit the ball twice"
    TIMED_OUT = "timed out"
    RETIRED_OUT = "retired out"
    RETIRED_HURT = "retired hurt"
    RETIRED_NOT_OUT = "retired not out"
    OTHER = "out"

    @property
    def is_credited_to_bowler(self) -> bool:
        """Credited to the bowler: a run out, for one, is not."""
        return self in _BOWLERS

    @property
    def counts(self) -> bool:
        """Counts as a wicket of the side: who retires hurt or not out may come back."""
        return self not in _MAY_COME_BACK


_BOWLERS: Final = frozenset(
    {
        WicketKind.BOWLED,
        WicketKind.CAUGHT,
        WicketKind.CAUGHT_AND_BOWLED,
        WicketKind.LBW,
        WicketKind.STUMPED,
        WicketKind.HIT_WICKET,
    }
)
_MAY_COME_BACK: Final = frozenset({WicketKind.RETIRED_HURT, WicketKind.RETIRED_NOT_OUT})


class Overs(NamedTuple):
    """Overs bowled as scorers write them: 19.4 is nineteen overs and four balls, and orders as such. Never a float."""

    overs: int
    balls: int

    def __str__(self) -> str:
        return f"{self.overs}.{self.balls}"


class Side(msgspec.Struct, frozen=True):
    """One of the two teams."""

    team_id: str
    name: str
    code: str = ""
    image_url: str = ""


class Toss(msgspec.Struct, frozen=True):
    """Who won the toss, and what they chose: "batting" or "bowling"."""

    team_id: str
    elected: str


class Target(msgspec.Struct, frozen=True):
    """What the side that bats last must reach, where the service says so: after rain, runs and overs are revised."""

    runs: int
    overs: Overs | None = None


class Extras(msgspec.Struct, frozen=True):
    """Runs that no batter made."""

    wides: int = 0
    noballs: int = 0
    byes: int = 0
    leg_byes: int = 0
    penalty: int = 0

    @property
    def total(self) -> int:
        return self.wides + self.noballs + self.byes + self.leg_byes + self.penalty


class BatterLine(msgspec.Struct, frozen=True):
    """One batter's line of the scorecard.

    `how_out` is None while the batter is in, or was at the end.
    """

    player_id: str
    name: str
    runs: int
    balls: int
    fours: int
    sixes: int
    is_at_crease: bool
    how_out: WicketKind | None = None
    bowler_id: str | None = None
    sort: int = 0


class BowlerLine(msgspec.Struct, frozen=True):
    """One bowler's line of the scorecard: `overs` complete ones and `balls` of the next."""

    player_id: str
    name: str
    overs: int
    balls: int
    maidens: int
    runs: int
    wickets: int
    wides: int = 0
    noballs: int = 0
    is_bowling: bool = False


class InningsFeed(msgspec.Struct, frozen=True):
    """An innings as the scores tell it.

    Numbers count in order of play, super overs too: that of a T20 has innings 3 and 4.
    """

    number: int
    team_id: str
    is_super_over: bool
    runs: int
    wickets: int
    overs: Overs
    is_declared: bool = False
    batters: tuple[BatterLine, ...] = ()
    bowlers: tuple[BowlerLine, ...] = ()
    extras: Extras | None = None


class Wicket(msgspec.Struct, frozen=True):
    """Who went on a ball, and how."""

    player_out_id: str
    player_out_name: str
    kind: WicketKind
    fielders: tuple[str, ...] = ()

    @property
    def is_credited_to_bowler(self) -> bool:
        return self.kind.is_credited_to_bowler

    @property
    def counts(self) -> bool:
        return self.kind.counts


class Ball(msgspec.Struct, frozen=True):
    """One delivery.

    `over` counts from 0; `number` is the ball's number in its over, which a wide or a no-ball does
    not use up, so that the next ball has it again. Ids rise in order of play; a correction comes
    under the id of the ball that it corrects.
    """

    id: int
    innings: int
    over: int
    number: int
    batting_team_id: str
    striker_id: str
    striker_name: str
    non_striker_id: str | None
    bowler_id: str
    bowler_name: str
    runs_bat: int
    runs_total: int
    wides: int = 0
    noballs: int = 0
    byes: int = 0
    leg_byes: int = 0
    penalty: int = 0
    is_boundary_four: bool = False
    is_boundary_six: bool = False
    wicket: Wicket | None = None
    updated_at: str = ""
    # False for a wicket that falls without a ball, such as a batter who is timed out: it comes
    # after the ball with its number.
    is_delivery: bool = True

    @property
    def is_legal(self) -> bool:
        """One of the over's six: neither a wide nor a no-ball."""
        return self.is_delivery and not self.wides and not self.noballs

    @property
    def runs_against_bowler(self) -> int:
        """Byes, leg-byes and penalty runs are not the bowler's fault."""
        return self.runs_bat + self.wides + self.noballs


class MatchFeed(msgspec.Struct, frozen=True):
    """Everything that one poll says about one match.

    `balls` is None where the poll asked for scores alone.
    """

    match_id: str
    league_id: str
    season_id: str
    match_type: str
    total_overs: int | None
    teams: tuple[Side, Side]
    starts_at: str
    status: MatchStatus
    status_text: str
    is_live: bool
    received_at: int
    toss: Toss | None = None
    innings: tuple[InningsFeed, ...] = ()
    note: str = ""
    winner_team_id: str | None = None
    draw_noresult: str | None = None
    is_super_over: bool = False
    target: Target | None = None
    man_of_match: str | None = None
    balls: tuple[Ball, ...] | None = None

    def side(self, team_id: str) -> Side | None:
        """The team with this id, if it plays here."""
        return next((side for side in self.teams if side.team_id == team_id), None)


@dataclass(frozen=True, slots=True)
class LivePoll:
    """The response to one poll of all live matches.

    `match_ids` also contains the ids of matches whose payload could not be parsed.
    """

    feeds: tuple[MatchFeed, ...]
    match_ids: frozenset[str]
    received_at: int
