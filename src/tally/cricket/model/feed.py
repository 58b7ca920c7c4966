"""The feed of a match: everything that one poll of the score service contains about it.

The gateway builds these structs; detectors, scorecards and display states read them. They are
frozen and compare by value: two polls with the same content differ in `received_at` only. They have
one field per value of the feed.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import msgspec


class MatchStatus(Enum):
    """The status of a match, independent of the score service."""

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
        """Whether the match is over. Nothing else decides that.

        A match that left the live feed, such as a Test overnight, is not over, and neither is a
        postponed one.
        """
        return self in _OVER

    @property
    def is_interrupted(self) -> bool:
        """Whether no balls are bowled at the moment, and more may follow."""
        return self in _INTERRUPTED

    @property
    def is_running(self) -> bool:
        """Whether the match has started and is not over; it may be interrupted."""
        return self in _RUNNING


_OVER: Final = frozenset({MatchStatus.CANCELLED, MatchStatus.ABANDONED, MatchStatus.FINISHED})
_INTERRUPTED: Final = frozenset(
    {MatchStatus.INNINGS_BREAK, MatchStatus.BREAK, MatchStatus.DELAYED, MatchStatus.POSTPONED}
)
_RUNNING: Final = frozenset({MatchStatus.IN_PLAY, MatchStatus.INNINGS_BREAK, MatchStatus.BREAK})


class WicketKind(Enum):
    """How a batter was out. The value is the text for a scorecard."""

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
    ABSENT = "absent"
    OTHER = "out"

    @property
    def is_credited_to_bowler(self) -> bool:
        """Whether the wicket is credited to the bowler; a run out is not."""
        return self in _CREDITED_TO_BOWLER

    @property
    def counts(self) -> bool:
        """Whether it counts as a wicket.

        A batter who retires hurt or not out may return, and one who is absent never bats.
        """
        return self not in _NOT_A_WICKET


_CREDITED_TO_BOWLER: Final = frozenset(
    {
        WicketKind.BOWLED,
        WicketKind.CAUGHT,
        WicketKind.CAUGHT_AND_BOWLED,
        WicketKind.LBW,
        WicketKind.STUMPED,
        WicketKind.HIT_WICKET,
    }
)
_NOT_A_WICKET: Final = frozenset(
    {WicketKind.RETIRED_HURT, WicketKind.RETIRED_NOT_OUT, WicketKind.ABSENT}
)


class Overs(NamedTuple):
    """Overs as scorers write them: 19.4 is 19 overs and 4 balls. Ordered; never a float."""

    overs: int
    balls: int

    def __str__(self) -> str:
        return f"{self.overs}.{self.balls}"


class Side(msgspec.Struct, frozen=True):
    """One of the two teams of a match."""

    team_id: str
    name: str
    code: str = ""
    image_url: str = ""


class Toss(msgspec.Struct, frozen=True):
    """The winner of the toss and its choice: "batting", "bowling", or empty if it is unknown."""

    team_id: str
    elected: str = ""


class Target(msgspec.Struct, frozen=True):
    """The target of the chasing team if the service states it, such as a revision after rain."""

    runs: int
    overs: Overs | None = None


class Extras(msgspec.Struct, frozen=True):
    """Runs that are not credited to a batter."""

    wides: int = 0
    noballs: int = 0
    byes: int = 0
    leg_byes: int = 0
    penalty: int = 0

    @property
    def total(self) -> int:
        return self.wides + self.noballs + self.byes + self.leg_byes + self.penalty


class BatterLine(msgspec.Struct, frozen=True):
    """A batter's line of the scorecard; `how_out` is None for a batter who is not out."""

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
    """A bowler's line of the scorecard: `overs` complete overs and `balls` of the next one."""

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
    """The score of an innings.

    Numbers are in order of play and include super overs: those of a T20 are innings 3 and 4.
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
    """The batter who was out on a ball, and how."""

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

    `over` counts from 0. `number` is the ball's number in its over; the ball after a wide or a
    no-ball has the same number again. Ids increase in order of play. A correction has the id of the
    ball that it corrects.
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
    # False for a wicket without a delivery, such as a batter who is timed out. It follows the
    # delivery with its number.
    is_delivery: bool = True

    @property
    def is_legal(self) -> bool:
        """Whether it counts towards the six balls of the over: neither a wide nor a no-ball."""
        return self.is_delivery and not self.wides and not self.noballs

    @property
    def runs_against_bowler(self) -> int:
        """The runs charged to the bowler: without byes, leg-byes and penalty runs."""
        return self.runs_bat + self.wides + self.noballs


class MatchFeed(msgspec.Struct, frozen=True):
    """Everything that a poll contains about a match; `balls` is None if it excluded balls."""

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
        """Return the team with this id, if it plays in the match."""
        return next((side for side in self.teams if side.team_id == team_id), None)


@dataclass(frozen=True, slots=True)
class LivePoll:
    """The response to one poll of all live matches.

    `match_ids` also contains the ids of matches whose payload could not be parsed.
    """

    feeds: tuple[MatchFeed, ...]
    match_ids: frozenset[str]
    received_at: int
