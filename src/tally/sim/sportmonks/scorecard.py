"""Computes the scorecard of an innings from its deliveries.

`score_innings` is pure. An over is complete after its last legal ball, or when the next over
begins, because umpires miscount. Only a complete over counts for the bowler and can be a maiden.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tally.sim.sportmonks.match import BallExtras, Delivery, Dismissal, Innings, Match


@dataclass(slots=True)
class BattingEntry:
    """A batter's scorecard entry; a batter who retired hurt may resume.

    One field per column of a scorecard.
    """

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
    """A bowler's scorecard entry; one field per column."""

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
    """The current over."""

    number: int
    legal: int = 0
    bowlers: set[str] = field(default_factory=set)
    runs_conceded: int = 0
    is_complete: bool = False


@dataclass(slots=True)
class InningsScorecard:
    """The scorecard of an innings after some deliveries.

    Totals, entries and the state of the current over belong together, hence more than eight fields.
    """

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
    # The number of each delivery within its over; wides and no-balls do not count.
    numbers: list[int] = field(default_factory=list)
    _over: _Over | None = None

    def add(self, delivery: Delivery) -> None:
        over = self._current_over(delivery)
        self.numbers.append(min(over.legal + 1, 9))
        self._count_runs(delivery)
        self._bat(delivery)
        self._bowl(delivery, over)
        for wicket in delivery.wickets:
            self._record_dismissal(wicket, delivery)
        dismissed = {wicket.player_out for wicket in delivery.wickets}
        self.at_crease = tuple(
            name
            for name in (delivery.batter, delivery.non_striker)
            if name and name not in dismissed
        )
        if over.legal >= self.balls_per_over:
            self._finish(over)
        self.overs, self.balls = (
            (over.number + 1, 0) if over.is_complete else (over.number, over.legal)
        )

    def add_penalty(self, runs: int) -> None:
        """Add penalty runs between deliveries."""
        self.runs += runs
        self.extras = _add_extras(self.extras, BallExtras(penalty=runs))

    def _current_over(self, delivery: Delivery) -> _Over:
        over = self._over
        if over is not None and over.number == delivery.over:
            self._reopen(over)
            return over
        if over is not None:
            self._finish(over)
        self._over = _Over(delivery.over)
        return self._over

    def _finish(self, over: _Over) -> None:
        """Credit a complete over to its bowler; a shared over stays counted as balls."""
        if not over.is_complete:
            self._credit_over(over, 1)

    def _reopen(self, over: _Over) -> None:
        """Undo `_finish`: the umpire miscounted and the over continues."""
        if over.is_complete:
            self._credit_over(over, -1)

    def _credit_over(self, over: _Over, sign: int) -> None:
        over.is_complete = sign > 0
        if len(over.bowlers) != 1:
            return
        bowling = self.bowling[next(iter(over.bowlers))]
        bowling.balls -= sign * over.legal
        bowling.overs += sign
        bowling.maidens += sign * (over.runs_conceded == 0)

    def _count_runs(self, delivery: Delivery) -> None:
        self.runs += delivery.runs
        self.extras = _add_extras(self.extras, delivery.extras)
        self.noball_count += bool(delivery.extras.noballs)

    def _bat(self, delivery: Delivery) -> None:
        entry = self._batter(delivery.batter)
        if delivery.non_striker:
            self._batter(delivery.non_striker)
        entry.runs += delivery.runs_bat
        entry.balls += not delivery.extras.wides
        entry.fours += delivery.is_four
        entry.sixes += delivery.is_six

    def _batter(self, name: str) -> BattingEntry:
        entry = self.batting.get(name)
        if entry is None:
            entry = self.batting[name] = BattingEntry(name, len(self.batting) + 1)
        elif entry.wicket is not None and not entry.wicket.is_wicket:
            entry.wicket, entry.bowler = None, ""
        return entry

    def _bowl(self, delivery: Delivery, over: _Over) -> None:
        self.bowler = delivery.bowler
        entry = self.bowling.get(delivery.bowler)
        if entry is None:
            entry = self.bowling[delivery.bowler] = BowlingEntry(
                delivery.bowler, len(self.bowling) + 1
            )
        conceded = delivery.runs_bat + delivery.extras.wides + delivery.extras.noballs
        entry.runs += conceded
        entry.wides += delivery.extras.wides
        entry.noballs += delivery.extras.noballs
        entry.balls += delivery.is_legal
        over.legal += delivery.is_legal
        over.runs_conceded += conceded
        over.bowlers.add(delivery.bowler)

    def _record_dismissal(self, wicket: Dismissal, delivery: Delivery) -> None:
        entry = self._batter(wicket.player_out)
        entry.wicket = wicket
        entry.fall_score, entry.fall_ball = self.runs, f"{delivery.over}.{self.numbers[-1]}"
        self.wickets += wicket.is_wicket
        if wicket.is_credited_to_bowler:
            entry.bowler = delivery.bowler
            self.bowling[delivery.bowler].wickets += 1


def score_innings(
    match: Match, innings: Innings, deliveries: Sequence[Delivery], is_closed: bool
) -> InningsScorecard:
    """The scorecard after these deliveries; a closed innings includes later penalty runs."""
    scorecard = InningsScorecard(match.balls_per_over)
    scorecard.add_penalty(innings.penalty_before)
    for delivery in deliveries:
        scorecard.add(delivery)
    if is_closed:
        scorecard.add_penalty(innings.penalty_after)
        scorecard.at_crease = tuple(
            name for name in scorecard.at_crease if scorecard.batting[name].wicket is None
        )
    return scorecard


def _add_extras(left: BallExtras, right: BallExtras) -> BallExtras:
    if right == _NO_EXTRAS:
        return left
    return BallExtras(
        wides=left.wides + right.wides,
        noballs=left.noballs + right.noballs,
        byes=left.byes + right.byes,
        leg_byes=left.leg_byes + right.leg_byes,
        penalty=left.penalty + right.penalty,
    )


_NO_EXTRAS = BallExtras()
