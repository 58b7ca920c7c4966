"""Events from balls, each at the ball that it falls on, in order of play.

`BallWatcher` is given one ball after another, and knows of each bowler's run of wickets for the
whole match: a hat-trick may lie across overs and innings, while a super over keeps its own. Events
of one ball come in this order: who came in, the boundary, sixes in a row, what the batter has
reached, the wicket, what the bowler has reached, and at the end of its over the maiden.

With the balls at hand, what the scores can tell (fifty, wicket, …) is told from here too, since
only balls say when it was.
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
    """Sees the balls of a match in order."""

    def __init__(
        self, super_overs: frozenset[int] = frozenset(), names: Mapping[str, str] = NO_NAMES
    ) -> None:
        self.tallies: dict[int, InningsTally] = {}
        self._super_overs = super_overs
        # A ball has no name for the batter at the other end.
        self._names = names
        # By bowler, and in a super over by its innings as well: bowler's wickets with consecutive
        # balls.
        self._runs_of_wickets: dict[tuple[str, int], int] = {}
        self._came_in: dict[int, list[str]] = {}

    def watch(self, balls: Iterable[Ball]) -> Iterator[KeyEvent]:
        """The events of these balls; an over whose sixth legal ball was the last that is known counts as complete."""
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
        came_in = self._came_in.setdefault(ball.innings, [])
        for player_id in (ball.striker_id, ball.non_striker_id):
            if player_id and player_id not in came_in:
                came_in.append(player_id)
                if len(came_in) > OPENERS:
                    name = tally.batters[player_id].name or self._names.get(player_id, "")
                    yield ball_event(ball, tally, EventKind.NEW_BATTER, player_id, player=name)

    def _batting(self, tally: InningsTally, ball: Ball, runs_before: int) -> Iterator[KeyEvent]:
        batter = tally.batters[ball.striker_id]
        told: dict[str, Any] = {
            "player": batter.name,
            "other": ball.bowler_name,
            "runs": batter.runs,
            "balls": batter.balls,
        }
        if ball.is_boundary_six or ball.is_boundary_four:
            kind = EventKind.SIX if ball.is_boundary_six else EventKind.FOUR
            yield ball_event(ball, tally, kind, ball.striker_id, **told)
        if ball.is_boundary_six and batter.sixes_in_a_row > 1:
            count = batter.sixes_in_a_row
            yield ball_event(
                ball,
                tally,
                EventKind.CONSECUTIVE_SIXES,
                f"{ball.striker_id}:{count}",
                count=count,
                **told,
            )
        for kind in milestones(runs_before, batter.runs):
            yield ball_event(ball, tally, kind, ball.striker_id, **told)
        if is_on_fire(batter.runs, batter.balls) and not self._was_on_fire(batter, ball):
            yield ball_event(ball, tally, EventKind.BATTER_ON_FIRE, ball.striker_id, **told)

    @staticmethod
    def _was_on_fire(batter: BatterTally, ball: Ball) -> bool:
        """A ball earlier.

        Who cools down and catches fire again is on fire twice here; `history` keeps the first.
        """
        return is_on_fire(batter.runs - ball.runs_bat, batter.balls - (not ball.wides))

    def _bowling(self, tally: InningsTally, ball: Ball) -> Iterator[KeyEvent]:
        key = (ball.bowler_id, ball.innings if tally.is_super_over else 0)
        if ball.wicket is not None and ball.wicket.counts:
            yield self._wicket(tally, ball, ball.wicket)
        if ball.wicket is None or not ball.wicket.is_credited_to_bowler:
            self._runs_of_wickets[key] = 0
            return
        count = self._runs_of_wickets[key] = self._runs_of_wickets.get(key, 0) + 1
        bowler = tally.bowlers[ball.bowler_id]
        told: dict[str, Any] = {"player": bowler.name, "count": count}
        if count == ON_HAT_TRICK:
            yield ball_event(ball, tally, EventKind.ON_HAT_TRICK, ball.bowler_id, **told)
        elif count >= HAT_TRICK:
            yield ball_event(ball, tally, EventKind.HAT_TRICK, ball.bowler_id, **told)
        if bowler.wickets >= BOWLER_ON_FIRE_WICKETS:
            subject = f"{ball.bowler_id}:{bowler.wickets}"
            figures: dict[str, Any] = {"count": bowler.wickets, "runs": bowler.runs}
            yield ball_event(
                ball, tally, EventKind.BOWLER_ON_FIRE, subject, player=bowler.name, **figures
            )

    @staticmethod
    def _wicket(tally: InningsTally, ball: Ball, wicket: Wicket) -> KeyEvent:
        out = tally.batters[wicket.player_out_id]
        told: dict[str, Any] = {
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
            **told,
        )


def ball_event(
    ball: Ball, tally: InningsTally, kind: EventKind, subject: str, **told: Any
) -> KeyEvent:
    """An event on `ball`, with the score after it."""
    place: dict[str, Any] = {
        "innings": ball.innings,
        "over": ball.over,
        "number": ball.number,
        "ball_id": ball.id,
    }
    side: dict[str, Any] = {"team_id": tally.team_id, "is_super_over": tally.is_super_over}
    return KeyEvent(
        kind=kind, subject=subject, score=f"{tally.runs}/{tally.wickets}", **place, **side, **told
    )
