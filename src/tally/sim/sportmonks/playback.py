"""Plays back a match: how much of it has happened, and how it is reported.

A playback advances in one of three ways: by `step()`; by the clock, `speed` times as fast (at 60, a
minute of the match takes a second); or by `per_poll` steps with every poll of the live scores.
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
    match_timeline,
    progress_after,
)

# Polls that show the result of a `per_poll` match before its coverage ends.
RESULT_POLLS: Final = 20
ORDINALS: Final = ("1st", "2nd", "3rd", "4th")
# Ways to make a fixture invalid.
Garble = Literal[
    "no_id", "no_teams", "text_for_numbers", "text_for_a_list", "not_an_object", "bad_ball"
]


class MatchPlayback:
    """A match and its position on the timeline."""

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
        # By how many steps the next polls lag behind, like responses from a stale cache.
        self.lags: deque[int] = deque()
        # Overrides the status: a rain break, lunch, an abandoned match.
        self.status: str | None = None
        self.garble: Garble | None = None
        self._position = 0
        self._result_polls = 0
        self._times = [step.at for step in self.steps]
        self._cached: tuple[object, dict[str, Any]] = (None, {})

    @property
    def position(self) -> int:
        """The number of completed steps."""
        if self._speed is not None:
            elapsed = (self._clock.now() - self.starting_at).total_seconds() * self._speed
            self._position = max(self._position, bisect.bisect_right(self._times, elapsed))
        return self._position

    @property
    def speed(self) -> float | None:
        return self._speed

    def set_speed(self, speed: float | None) -> None:
        """Continue from here at another speed; None: step manually."""
        position = self.position
        self._speed = speed
        if speed is not None:
            at = self._times[position - 1] if position else self._times[0]
            self.starting_at = self._clock.now() - timedelta(seconds=at / speed)

    def step(self, count: int = 1) -> int:
        """Advance by `count` steps; returns the new position."""
        self._position = min(len(self.steps), self.position + count)
        return self._position

    def finish(self) -> None:
        """Advance to the result; the match stays listed."""
        self._position = max(self.position, len(self.steps) - 1)

    def deliver(self, count: int = 1) -> int:
        """Advance by `count` deliveries; returns how many remain."""
        while count and not self.progress.is_over:
            position = self.position
            self.step()
            count -= self.position > position and self.steps[position].kind == "delivery"
        return self.deliveries - sum(self.progress.balls)

    @property
    def deliveries(self) -> int:
        return sum(step.kind == "delivery" for step in self.steps)

    @property
    def progress(self) -> MatchProgress:
        return progress_after(self.steps[: self.position])

    @property
    def is_listed(self) -> bool:
        """Whether the match is in the live scores: from the toss until coverage ends."""
        return 0 < self.position < len(self.steps)

    def poll(self) -> dict[str, Any]:
        """The fixture for a poll of the live scores; may advance the match."""
        if self.per_poll:
            self._advance()
        lag = self.lags.popleft() if self.lags else 0
        return self.fixture(lag)

    def _advance(self) -> None:
        """Advance by `per_poll` steps; show the result for some polls before coverage ends."""
        result = len(self.steps) - 1
        if self.position < result:
            self.step(min(self.per_poll, result - self.position))
            return
        self._result_polls += 1
        if self._result_polls > RESULT_POLLS:
            self.step()

    def fixture(self, lag: int = 0) -> dict[str, Any]:
        """The fixture with every relation. The caller must not modify it."""
        key = (max(self.position - lag, 0), self.mistakes, self.status, self.starting_at)
        cached_key, fixture = self._cached
        if cached_key != key:
            fixture = self._render(*key)
            self._cached = key, fixture
        return fixture

    def _render(
        self, position: int, mistakes: Mistakes, status: str | None, starting_at: datetime
    ) -> dict[str, Any]:
        progress = progress_after(self.steps[:position])
        reported, played = sum(progress.balls), []
        first = 0
        for innings, count in zip(self.match.innings, progress.balls, strict=False):
            numbered = enumerate(innings.deliveries[:count], first)
            played.append(
                tuple(mistakes.report(index, delivery, reported) for index, delivery in numbered)
            )
            first += count
        is_over = progress.is_over
        return render_fixture(
            MatchSnapshot(
                match=self.match,
                starting_at=format_timestamp(starting_at),
                status=status or self._match_status(progress),
                updated_at=format_timestamp(
                    starting_at + timedelta(seconds=max(0.0, self._times[max(position - 1, 0)]))
                ),
                is_tossed=progress.is_tossed,
                is_over=is_over,
                played=tuple(played) if not is_over else self._all_deliveries(progress),
                closed=progress.closed,
                withheld=frozenset() if is_over else mistakes.withheld(reported),
                duplicated=mistakes.twice,
                corrected=mistakes.corrected(reported),
            )
        )

    def _all_deliveries(self, progress: MatchProgress) -> tuple[Any, ...]:
        """The deliveries without mistakes: the final score is correct."""
        return tuple(innings.deliveries for innings in self.match.innings[: len(progress.balls)])

    def _match_status(self, progress: MatchProgress) -> str:
        if progress.is_over:
            return "Aban." if self.match.outcome.result == "no result" else "Finished"
        if not progress.balls:
            return "NS"
        if progress.is_between:
            return "Innings Break"
        return f"{ORDINALS[min(len(progress.balls), 4) - 1]} Innings"


def format_timestamp(time: datetime) -> str:
    """Format a time like SportMonks."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
