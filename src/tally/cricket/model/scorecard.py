"""Computes scorecards from balls.

`InningsTally.bowl` adds one ball. The first ball of the next over closes an over; without one, the
sixth legal ball does. Umpires may miscount, and an innings may end in the middle of an over.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tally.cricket.model.feed import (
    Ball,
    BatterLine,
    BowlerLine,
    Extras,
    InningsFeed,
    Overs,
    WicketKind,
)
from tally.cricket.model.laws import BALLS_PER_OVER


@dataclass(slots=True)
class BatterTally:
    """A batter's innings; one field per figure of the scorecard.

    `sixes_in_a_row` counts faced balls.
    """

    player_id: str
    name: str = ""
    runs: int = 0
    balls: int = 0
    fours: int = 0
    sixes: int = 0
    sixes_in_a_row: int = 0
    how_out: WicketKind | None = None
    bowler_id: str | None = None


@dataclass(slots=True)
class BowlerTally:
    """A bowler's figures in an innings; `balls` counts those of an incomplete over."""

    player_id: str
    name: str = ""
    overs: int = 0
    balls: int = 0
    maidens: int = 0
    runs: int = 0
    wickets: int = 0
    wides: int = 0
    noballs: int = 0


@dataclass(slots=True)
class OverTally:
    """The current over."""

    number: int
    legal: int = 0
    against_bowler: int = 0
    bowlers: dict[str, int] = field(default_factory=dict)
    last: Ball | None = None

    @property
    def is_maiden(self) -> bool:
        return self.against_bowler == 0 and len(self.bowlers) == 1


@dataclass(slots=True)
class InningsTally:
    """The running totals of an innings; one field per figure."""

    number: int
    team_id: str
    is_super_over: bool
    runs: int = 0
    wickets: int = 0
    legal: int = 0
    overs_complete: int = 0
    over: OverTally | None = None
    last: Ball | None = None
    batters: dict[str, BatterTally] = field(default_factory=dict)
    bowlers: dict[str, BowlerTally] = field(default_factory=dict)
    extras: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("wides", "noballs", "byes", "leg_byes", "penalty"), 0
        )
    )

    def batter(self, player_id: str, name: str = "") -> BatterTally:
        tally = self.batters.get(player_id)
        if tally is None:
            tally = self.batters[player_id] = BatterTally(player_id, name)
        tally.name = tally.name or name
        return tally

    def bowler(self, player_id: str, name: str = "") -> BowlerTally:
        tally = self.bowlers.get(player_id)
        if tally is None:
            tally = self.bowlers[player_id] = BowlerTally(player_id, name)
        tally.name = tally.name or name
        return tally

    def bowl(self, ball: Ball) -> None:
        """Add a ball. To learn of a maiden over, call `close_over` before."""
        if not ball.is_delivery:
            self._add_wicket(ball)
            return
        self.close_over(ball)
        if self.over is None:
            self.over = OverTally(ball.over)
        self.over.last = self.last = ball
        self.over.bowlers[ball.bowler_id] = self.over.bowlers.get(ball.bowler_id, 0) + ball.is_legal
        self.over.legal += ball.is_legal
        self.over.against_bowler += ball.runs_against_bowler
        self.runs += ball.runs_total
        self.legal += ball.is_legal
        for name in self.extras:
            self.extras[name] += getattr(ball, name)
        self._add_to_batter(ball)
        self._add_to_bowler(ball)
        self._add_wicket(ball)

    def close_over(self, following: Ball | None) -> Ball | None:
        """Close the over unless `following` belongs to it; return the last ball of a maiden.

        Without `following`, only a complete over is closed.
        """
        over = self.over
        if (
            over is None
            or over.last is None
            or (following is not None and following.over == over.number)
        ):
            return None
        if following is None and over.legal < BALLS_PER_OVER:
            return None
        self.over = None
        self.overs_complete += 1
        for player_id, legal in over.bowlers.items():
            bowler = self.bowler(player_id)
            if len(over.bowlers) == 1:
                bowler.overs += 1
                bowler.maidens += over.is_maiden
            else:
                bowler.overs, bowler.balls = divmod(
                    bowler.overs * BALLS_PER_OVER + bowler.balls + legal, BALLS_PER_OVER
                )
        return over.last if over.is_maiden else None

    def _add_to_batter(self, ball: Ball) -> None:
        striker = self.batter(ball.striker_id, ball.striker_name)
        if ball.non_striker_id:
            self.batter(ball.non_striker_id)
        if striker.how_out is not None and not striker.how_out.counts:
            striker.how_out = None  # returned
        if not ball.wides:
            striker.balls += 1
            striker.sixes_in_a_row = striker.sixes_in_a_row + 1 if ball.is_boundary_six else 0
        striker.runs += ball.runs_bat
        striker.fours += ball.is_boundary_four
        striker.sixes += ball.is_boundary_six

    def _add_to_bowler(self, ball: Ball) -> None:
        bowler = self.bowler(ball.bowler_id, ball.bowler_name)
        bowler.runs += ball.runs_against_bowler
        bowler.wides += ball.wides
        bowler.noballs += ball.noballs
        bowler.wickets += ball.wicket is not None and ball.wicket.is_credited_to_bowler

    def _add_wicket(self, ball: Ball) -> None:
        if ball.wicket is None:
            return
        out = self.batter(ball.wicket.player_out_id, ball.wicket.player_out_name)
        out.how_out = ball.wicket.kind
        out.bowler_id = ball.bowler_id if ball.wicket.is_credited_to_bowler else None
        self.wickets += ball.wicket.counts

    @property
    def overs(self) -> Overs:
        if self.over is None:
            return Overs(self.overs_complete, 0)
        complete, balls = divmod(self.over.legal, BALLS_PER_OVER)
        return Overs(self.overs_complete + complete, balls)

    def card(self) -> InningsFeed:
        """Return the innings in the form of a feed."""
        return InningsFeed(
            self.number,
            self.team_id,
            self.is_super_over,
            self.runs,
            self.wickets,
            self.overs,
            batters=tuple(
                self._batter_line(tally, sort)
                for sort, tally in enumerate(self.batters.values(), 1)
            ),
            bowlers=tuple(self._bowler_line(tally) for tally in self.bowlers.values()),
            extras=Extras(**self.extras),
        )

    def _batter_line(self, tally: BatterTally, sort: int) -> BatterLine:
        last = self.last
        is_in = (
            last is not None
            and tally.how_out is None
            and tally.player_id in {last.striker_id, last.non_striker_id}
        )
        return BatterLine(
            player_id=tally.player_id,
            name=tally.name,
            runs=tally.runs,
            balls=tally.balls,
            fours=tally.fours,
            sixes=tally.sixes,
            is_at_crease=is_in,
            how_out=tally.how_out,
            bowler_id=tally.bowler_id,
            sort=sort,
        )

    def _bowler_line(self, tally: BowlerTally) -> BowlerLine:
        current_balls = 0
        if self.over is not None:
            current_balls = self.over.bowlers.get(tally.player_id, 0)
        overs, balls = divmod(
            tally.overs * BALLS_PER_OVER + tally.balls + current_balls, BALLS_PER_OVER
        )
        return BowlerLine(
            player_id=tally.player_id,
            name=tally.name,
            overs=overs,
            balls=balls,
            maidens=tally.maidens,
            runs=tally.runs,
            wickets=tally.wickets,
            wides=tally.wides,
            noballs=tally.noballs,
        )


def scorecards(
    balls: Iterable[Ball], super_overs: frozenset[int] = frozenset()
) -> tuple[InningsFeed, ...]:
    """Return the scorecard of every innings; `super_overs` contains numbers of innings."""
    tallies: dict[int, InningsTally] = {}
    for ball in balls:
        tally = tallies.get(ball.innings)
        if tally is None:
            tally = tallies[ball.innings] = InningsTally(
                ball.innings, ball.batting_team_id, ball.innings in super_overs
            )
        tally.bowl(ball)
    for tally in tallies.values():
        tally.close_over(None)
    return tuple(tally.card() for tally in tallies.values())
