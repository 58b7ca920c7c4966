"""One match on the air: how much of it has happened by now, and how it is told.

A broadcast moves in one of three ways. By hand, `step()` lets one more thing happen. With a
`speed`, where it stands follows from the clock: at 60, a minute of the match passes in a second.
With `per_poll`, every look at the live scores moves it on, as fast as anybody asks.
"""

import bisect
from collections import deque
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from tally.kit.clock import Clock
from tally.sim.sportmonks.fixtures import render_fixture
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.mistakes import Mistakes
from tally.sim.sportmonks.timeline import (
    MatchProgress,
    MatchSnapshot,
    TimelineStep,
    match_progress,
    match_timeline,
)

# So often the result is seen of a match that moves with every look.
POLLS_AFTER: Final = 20
ORDINALS: Final = ("1st", "2nd", "3rd", "4th")
# Ways in which a fixture can be unreadable among good ones.
Garble = Literal[
    "no_id", "no_teams", "text_for_numbers", "text_for_a_list", "not_an_object", "bad_ball"
]


class MatchPlayback:
    """A match, and where it stands."""

    def __init__(
        self,
        match: Match,
        clock: Clock,
        *,
        starting_at: datetime | None = None,
        speed: float | None = None,
        per_poll: int = 0,
        mistakes: Mistakes | None = None,
    ) -> None:
        self.match = match
        self.steps: tuple[TimelineStep, ...] = match_timeline(match)
        self._clock = clock
        self._speed = speed
        self.starting_at = starting_at or clock.now() + timedelta(minutes=30) / (speed or 1)
        self.per_poll = per_poll
        self.mistakes = mistakes or Mistakes()
        # How many steps behind the next polls are: an answer out of an old cache.
        self.lags: deque[int] = deque()
        # Instead of what the match itself would say: a rain break, lunch, a match called off.
        self.status: str | None = None
        self.garble: Garble | None = None
        self._position = 0
        self._polls_after = 0
        self._times = [step.at for step in self.steps]
        self._latest: tuple[object, dict[str, Any]] = (None, {})

    @property
    def position(self) -> int:
        """The number of steps that have happened."""
        if self._speed is not None:
            elapsed = (self._clock.now() - self.starting_at).total_seconds() * self._speed
            self._position = max(self._position, bisect.bisect_right(self._times, elapsed))
        return self._position

    @property
    def speed(self) -> float | None:
        return self._speed

    def run_at(self, speed: float | None) -> None:
        """Go on from here at another speed, or by hand."""
        position = self.position
        self._speed = speed
        if speed is not None:
            at = self._times[position - 1] if position else self._times[0]
            self.starting_at = self._clock.now() - timedelta(seconds=at / speed)

    def step(self, count: int = 1) -> int:
        """Let so many more things happen; the number of all that have."""
        self._position = min(len(self.steps), self.position + count)
        return self._position

    def play_out(self) -> None:
        """Come to the result at once; the match is still covered."""
        self._position = max(self.position, len(self.steps) - 1)

    def deliver(self, count: int = 1) -> int:
        """Let so many more deliveries happen, with all that comes between; the number of those left."""
        while count and not self.progress.is_over:
            at = self.position
            self.step()
            count -= self.position > at and self.steps[at].kind == "delivery"
        return self.deliveries - sum(self.progress.balls)

    @property
    def deliveries(self) -> int:
        return sum(step.kind == "delivery" for step in self.steps)

    @property
    def progress(self) -> MatchProgress:
        return match_progress(self.steps[: self.position])

    @property
    def is_listed(self) -> bool:
        """Whether the match is among the live scores: from the toss until coverage ends."""
        return 0 < self.position < len(self.steps)

    def poll(self) -> dict[str, Any]:
        """The fixture as a look at the live scores finds it; which may move the match on."""
        if self.per_poll:
            self._move()
        lag = self.lags.popleft() if self.lags else 0
        return self.fixture(lag)

    def _move(self) -> None:
        """Go on by some steps, but never past the result unseen: that is shown for some polls before coverage ends."""
        result = len(self.steps) - 1
        if self.position < result:
            self.step(min(self.per_poll, result - self.position))
            return
        self._polls_after += 1
        if self._polls_after > POLLS_AFTER:
            self.step()

    def fixture(self, lag: int = 0) -> dict[str, Any]:
        """The fixture with all that can be included; it must not be changed."""
        wanted = (max(self.position - lag, 0), self.mistakes, self.status, self.starting_at)
        made_for, made = self._latest
        if made_for != wanted:
            made = self._render(*wanted)
            self._latest = wanted, made
        return made

    def _render(
        self, position: int, mistakes: Mistakes, status: str | None, starting_at: datetime
    ) -> dict[str, Any]:
        stands = match_progress(self.steps[:position])
        told, played = sum(stands.balls), []
        place = 0
        for innings, count in zip(self.match.innings, stands.balls, strict=False):
            numbered = enumerate(innings.deliveries[:count], place)
            played.append(tuple(mistakes.reported(at, delivery, told) for at, delivery in numbered))
            place += count
        is_settled = stands.is_over
        return render_fixture(
            MatchSnapshot(
                match=self.match,
                starting_at=format_timestamp(starting_at),
                status=status or self._status(stands),
                updated_at=format_timestamp(
                    starting_at + timedelta(seconds=max(0.0, self._times[max(position - 1, 0)]))
                ),
                is_tossed=stands.is_tossed,
                is_over=is_settled,
                played=tuple(played) if not is_settled else self._all(stands),
                closed=stands.closed,
                withheld=frozenset() if is_settled else mistakes.withheld(told),
                doubled=mistakes.twice,
                corrected=mistakes.corrected(told),
            )
        )

    def _all(self, stands: MatchProgress) -> tuple[Any, ...]:
        """When the match is over, whatever was wrong has been put right."""
        return tuple(innings.deliveries for innings in self.match.innings[: len(stands.balls)])

    def _status(self, stands: MatchProgress) -> str:
        if stands.is_over:
            return "Aban." if self.match.outcome.result == "no result" else "Finished"
        if not stands.balls:
            return "NS"
        if stands.is_between:
            return "Innings Break"
        return f"{ORDINALS[min(len(stands.balls), 4) - 1]} Innings"


def format_timestamp(moment: datetime) -> str:
    """A time as SportMonks writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
