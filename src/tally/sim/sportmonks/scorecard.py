"""Keeps score: what the deliveries of an innings add up to, for the side, each batter and each bowler.

`score_innings(match, innings, deliveries)` is pure: the same deliveries always give the same sheet. An over
is complete with its last legal ball, or when the next one has begun (umpires miscount); only then
does it count as one of the bowler's, and may be a maiden.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tally.sim.sportmonks.match import BallExtras, Delivery, Dismissal, Innings, Match


@dataclass(slots=True)
class BattingEntry:
    """One batter's innings so far; who retired hurt and came back is in again."""

    name: str
    sort: int
    runs: int = 0
    balls: int = 0
    fours: int = 0
    sixes: int = 0
    wicket: Dismissal | None = None
    bowler: str = ""
    fall_score: int = 0
    fall_ball: str = "0.0"


@dataclass(slots=True)
class BowlingEntry:
    """One bowler's figures so far."""

    name: str
    sort: int
    overs: int = 0
    balls: int = 0
    maidens: int = 0
    runs: int = 0
    wickets: int = 0
    wides: int = 0
    noballs: int = 0


@dataclass(slots=True)
class _Over:
    """The over that is being bowled."""

    number: int
    legal: int = 0
    bowlers: set[str] = field(default_factory=set)
    against: int = 0
    is_complete: bool = False


@dataclass(slots=True)
class InningsScorecard:
    """The scorecard of an innings at a moment."""

    balls_per_over: int
    runs: int = 0
    wickets: int = 0
    overs: int = 0
    balls: int = 0
    extras: BallExtras = field(default_factory=BallExtras)
    noball_count: int = 0
    batting: dict[str, BattingEntry] = field(default_factory=dict)
    bowling: dict[str, BowlingEntry] = field(default_factory=dict)
    at_crease: tuple[str, ...] = ()
    bowler: str = ""
    # The number of each delivery within its over: a wide or a no-ball does not use it up.
    numbers: list[int] = field(default_factory=list)
    _over: _Over | None = None

    def add(self, delivery: Delivery) -> None:
        over = self._over_of(delivery)
        self.numbers.append(min(over.legal + 1, 9))
        self._count_runs(delivery)
        self._bat(delivery)
        self._bowl(delivery, over)
        for wicket in delivery.wickets:
            self._fall(wicket, delivery)
        gone = {wicket.player_out for wicket in delivery.wickets}
        self.at_crease = tuple(
            name for name in (delivery.batter, delivery.non_striker) if name and name not in gone
        )
        if over.legal >= self.balls_per_over:
            self._finish(over)
        self.overs, self.balls = (
            (over.number + 1, 0) if over.is_complete else (over.number, over.legal)
        )

    def penalise(self, runs: int) -> None:
        """Penalty runs between deliveries."""
        self.runs += runs
        self.extras = _sum(self.extras, BallExtras(penalty=runs))

    def _over_of(self, delivery: Delivery) -> _Over:
        over = self._over
        if over is not None and over.number == delivery.over:
            self._reopen(over)
            return over
        if over is not None:
            self._finish(over)
        self._over = _Over(delivery.over)
        return self._over

    def _finish(self, over: _Over) -> None:
        """Count a complete over as its bowler's; one that two had to share stays balls."""
        if not over.is_complete:
            self._reckon(over, 1)

    def _reopen(self, over: _Over) -> None:
        """Take back a finish: the umpire has lost count, and there is one more."""
        if over.is_complete:
            self._reckon(over, -1)

    def _reckon(self, over: _Over, sign: int) -> None:
        over.is_complete = sign > 0
        if len(over.bowlers) != 1:
            return
        bowling = self.bowling[next(iter(over.bowlers))]
        bowling.balls -= sign * over.legal
        bowling.overs += sign
        bowling.maidens += sign * (over.against == 0)

    def _count_runs(self, delivery: Delivery) -> None:
        self.runs += delivery.runs
        self.extras = _sum(self.extras, delivery.extras)
        self.noball_count += bool(delivery.extras.noballs)

    def _bat(self, delivery: Delivery) -> None:
        line = self._batter(delivery.batter)
        if delivery.non_striker:
            self._batter(delivery.non_striker)
        line.runs += delivery.runs_bat
        line.balls += not delivery.extras.wides
        line.fours += delivery.is_four
        line.sixes += delivery.is_six

    def _batter(self, name: str) -> BattingEntry:
        line = self.batting.get(name)
        if line is None:
            line = self.batting[name] = BattingEntry(name, len(self.batting) + 1)
        elif line.wicket is not None and not line.wicket.counts:
            line.wicket, line.bowler = None, ""
        return line

    def _bowl(self, delivery: Delivery, over: _Over) -> None:
        self.bowler = delivery.bowler
        line = self.bowling.get(delivery.bowler)
        if line is None:
            line = self.bowling[delivery.bowler] = BowlingEntry(
                delivery.bowler, len(self.bowling) + 1
            )
        against = delivery.runs_bat + delivery.extras.wides + delivery.extras.noballs
        line.runs += against
        line.wides += delivery.extras.wides
        line.noballs += delivery.extras.noballs
        line.balls += delivery.is_legal
        over.legal += delivery.is_legal
        over.against += against
        over.bowlers.add(delivery.bowler)

    def _fall(self, wicket: Dismissal, delivery: Delivery) -> None:
        line = self._batter(wicket.player_out)
        line.wicket = wicket
        line.fall_score, line.fall_ball = self.runs, f"{delivery.over}.{self.numbers[-1]}"
        self.wickets += wicket.counts
        if wicket.is_bowlers:
            line.bowler = delivery.bowler
            self.bowling[delivery.bowler].wickets += 1


def score_innings(
    match: Match, innings: Innings, deliveries: Sequence[Delivery], is_closed: bool
) -> InningsScorecard:
    """The scorecard after these deliveries of an innings; what comes after the last ball counts when it is closed."""
    sheet = InningsScorecard(match.balls_per_over)
    sheet.penalise(innings.penalty_before)
    for delivery in deliveries:
        sheet.add(delivery)
    if is_closed:
        sheet.penalise(innings.penalty_after)
        sheet.at_crease = tuple(
            name for name in sheet.at_crease if sheet.batting[name].wicket is None
        )
    return sheet


def _sum(one: BallExtras, other: BallExtras) -> BallExtras:
    if other == _NONE:
        return one
    return BallExtras(
        wides=one.wides + other.wides,
        noballs=one.noballs + other.noballs,
        byes=one.byes + other.byes,
        leg_byes=one.leg_byes + other.leg_byes,
        penalty=one.penalty + other.penalty,
    )


_NONE = BallExtras()
