"""Tier 1: detects events from balls, each at its ball, in order of play.

The detector tracks each bowler's consecutive wickets for the whole match: a hat-trick may span
overs and innings; a super over counts separately. The events of one ball have this order: new
batter, boundary, consecutive sixes, batter milestone, wicket, bowler milestone and, at the end of
the over, maiden.

Tier 1 also detects the events of tier 0 (fifty, wicket, …), because only balls determine when they
happened.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import Ball, Wicket
from tally.cricket.model.scorecard import BatterTally, InningsTally
from tally.cricket.model.tier0 import BOWLER_ON_FIRE_WICKETS, OPENERS, is_on_fire, milestones

ON_HAT_TRICK: Final = 2
HAT_TRICK: Final = 3
NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


class BallEventDetector:
    """Detects the events of a match; receives its balls in order."""

    def __init__(
        self, super_overs: frozenset[int] = frozenset(), names: Mapping[str, str] = NO_NAMES
    ) -> None:
        self.tallies: dict[int, InningsTally] = {}
        self._super_overs = super_overs
        # A ball does not contain the name of the non-striker.
        self._names = names
        # Wickets with consecutive balls, by bowler and, for super overs, innings.
        self._consecutive_wickets: dict[tuple[str, int], int] = {}
        self._batters_seen: dict[int, list[str]] = {}

    def detect(self, balls: Iterable[Ball]) -> Iterator[KeyEvent]:
        """Yield the events of the balls; a last over with six legal balls counts as complete."""
        for ball in balls:
            yield from self._ball(ball)
        for tally in self.tallies.values():
            yield from self._end_of_over(tally, None)

    def _ball(self, ball: Ball) -> Iterator[KeyEvent]:
        tally = self.tallies.get(ball.innings)
        if tally is None:
            for earlier in self.tallies.values():
                yield from self._end_of_over(earlier, None)
            is_super_over = ball.innings in self._super_overs
            tally = self.tallies[ball.innings] = InningsTally(
                ball.innings, ball.batting_team_id, is_super_over
            )
        if not ball.is_delivery:
            tally.bowl(ball)
            if ball.wicket is not None and ball.wicket.counts:
                yield self._wicket(tally, ball, ball.wicket)
            return
        yield from self._end_of_over(tally, ball)
        striker = tally.batters.get(ball.striker_id)
        runs_before = striker.runs if striker else 0
        tally.bowl(ball)
        yield from self._new_batters(tally, ball)
        yield from self._batting(tally, ball, runs_before)
        yield from self._bowling(tally, ball)

    def _end_of_over(self, tally: InningsTally, following: Ball | None) -> Iterator[KeyEvent]:
        last = tally.close_over(following)
        if last is not None:
            yield ball_event(last, tally, EventKind.MAIDEN, str(last.over), player=last.bowler_name)

    def _new_batters(self, tally: InningsTally, ball: Ball) -> Iterator[KeyEvent]:
        seen = self._batters_seen.setdefault(ball.innings, [])
        for player_id in (ball.striker_id, ball.non_striker_id):
            if player_id and player_id not in seen:
                seen.append(player_id)
                if len(seen) > OPENERS:
                    name = tally.batters[player_id].name or self._names.get(player_id, "")
                    yield ball_event(ball, tally, EventKind.NEW_BATTER, player_id, player=name)

    def _batting(self, tally: InningsTally, ball: Ball, runs_before: int) -> Iterator[KeyEvent]:
        batter = tally.batters[ball.striker_id]
        details: dict[str, Any] = {
            "player": batter.name,
            "other": ball.bowler_name,
            "runs": batter.runs,
            "balls": batter.balls,
        }
        if ball.is_boundary_six or ball.is_boundary_four:
            kind = EventKind.SIX if ball.is_boundary_six else EventKind.FOUR
            yield ball_event(ball, tally, kind, ball.striker_id, **details)
        if ball.is_boundary_six and batter.sixes_in_a_row > 1:
            count = batter.sixes_in_a_row
            yield ball_event(
                ball,
                tally,
                EventKind.CONSECUTIVE_SIXES,
                f"{ball.striker_id}:{count}",
                count=count,
                **details,
            )
        for kind in milestones(runs_before, batter.runs):
            yield ball_event(ball, tally, kind, ball.striker_id, **details)
        if is_on_fire(batter.runs, batter.balls) and not self._was_on_fire(batter, ball):
            yield ball_event(ball, tally, EventKind.BATTER_ON_FIRE, ball.striker_id, **details)

    @staticmethod
    def _was_on_fire(batter: BatterTally, ball: Ball) -> bool:
        """Whether the batter was on fire before the ball.

        A batter can be on fire more than once; `history` keeps the first event.
        """
        return is_on_fire(batter.runs - ball.runs_bat, batter.balls - (not ball.wides))

    def _bowling(self, tally: InningsTally, ball: Ball) -> Iterator[KeyEvent]:
        key = (ball.bowler_id, ball.innings if tally.is_super_over else 0)
        if ball.wicket is not None and ball.wicket.counts:
            yield self._wicket(tally, ball, ball.wicket)
        if ball.wicket is None or not ball.wicket.is_credited_to_bowler:
            self._consecutive_wickets[key] = 0
            return
        count = self._consecutive_wickets[key] = self._consecutive_wickets.get(key, 0) + 1
        bowler = tally.bowlers[ball.bowler_id]
        details: dict[str, Any] = {"player": bowler.name, "count": count}
        if count == ON_HAT_TRICK:
            yield ball_event(ball, tally, EventKind.ON_HAT_TRICK, ball.bowler_id, **details)
        elif count >= HAT_TRICK:
            yield ball_event(ball, tally, EventKind.HAT_TRICK, ball.bowler_id, **details)
        if bowler.wickets >= BOWLER_ON_FIRE_WICKETS:
            subject = f"{ball.bowler_id}:{bowler.wickets}"
            wickets: dict[str, Any] = {"count": bowler.wickets, "runs": bowler.runs}
            yield ball_event(
                ball, tally, EventKind.BOWLER_ON_FIRE, subject, player=bowler.name, **wickets
            )

    @staticmethod
    def _wicket(tally: InningsTally, ball: Ball, wicket: Wicket) -> KeyEvent:
        out = tally.batters[wicket.player_out_id]
        details: dict[str, Any] = {
            "player": out.name,
            "runs": out.runs,
            "balls": out.balls,
            "count": tally.wickets,
        }
        other = ball.bowler_name if wicket.is_credited_to_bowler else ""
        return ball_event(
            ball,
            tally,
            EventKind.WICKET,
            out.player_id,
            reason=wicket.kind.value,
            other=other,
            **details,
        )


def ball_event(
    ball: Ball, tally: InningsTally, kind: EventKind, subject: str, **details: Any
) -> KeyEvent:
    """Return an event at a ball, with the score after it."""
    position: dict[str, Any] = {
        "innings": ball.innings,
        "over": ball.over,
        "number": ball.number,
        "ball_id": ball.id,
    }
    team: dict[str, Any] = {"team_id": tally.team_id, "is_super_over": tally.is_super_over}
    return KeyEvent(
        kind=kind,
        subject=subject,
        score=f"{tally.runs}/{tally.wickets}",
        **position,
        **team,
        **details,
    )
