"""The timeline of a match: toss, innings, deliveries, result and end of coverage.

A playback is a position on this list of steps.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from tally.sim.sportmonks.match import Delivery, Match

StepKind = Literal["toss", "begin", "delivery", "close", "finish", "leave"]

# Times and durations in seconds of the match.
TOSS: Final = -1800.0
BALL: Final = 35.0
NEW_OVER: Final = 40.0
BREAK: Final = 1200.0
SUPER_OVER_BREAK: Final = 600.0
RESULT: Final = 30.0
COVERAGE: Final = 600.0
WASHED_OUT: Final = 7200.0


class TimelineStep(msgspec.Struct, frozen=True):
    """An event and its time, in seconds from the start of the match."""

    kind: StepKind
    at: float
    innings: int = -1


class MatchProgress(msgspec.Struct, frozen=True):
    """The state of a match after some steps."""

    is_tossed: bool = False
    is_over: bool = False
    has_left: bool = False
    balls: tuple[int, ...] = ()
    closed: int = 0

    @property
    def is_between(self) -> bool:
        """Whether no innings is in progress."""
        return self.closed == len(self.balls)


def match_timeline(match: Match) -> tuple[TimelineStep, ...]:
    return tuple(_steps(match))


def _steps(match: Match) -> Iterator[TimelineStep]:
    yield TimelineStep("toss", TOSS)
    now = 0.0
    for index, innings in enumerate(match.innings):
        if index:
            now += SUPER_OVER_BREAK if innings.is_super_over else BREAK
        yield TimelineStep("begin", now, index)
        over = -1
        for delivery in innings.deliveries:
            now += BALL + (NEW_OVER if delivery.over != over else 0)
            over = delivery.over
            yield TimelineStep("delivery", now, index)
        now += 5
        yield TimelineStep("close", now, index)
    now += RESULT if match.innings else WASHED_OUT
    yield TimelineStep("finish", now)
    yield TimelineStep("leave", now + COVERAGE)


def progress_after(steps: tuple[TimelineStep, ...]) -> MatchProgress:
    """The progress after these steps."""
    balls: list[int] = []
    closed, kinds = 0, {"toss": False, "finish": False, "leave": False}
    for step in steps:
        if step.kind == "begin":
            balls.append(0)
        elif step.kind == "delivery":
            balls[-1] += 1
        elif step.kind == "close":
            closed += 1
        else:
            kinds[step.kind] = True
    return MatchProgress(kinds["toss"], kinds["finish"], kinds["leave"], tuple(balls), closed)


class MatchSnapshot(msgspec.Struct, frozen=True):
    """A match at one moment, as reported by the scorers.

    It is the whole input of the renderer, hence more than eight fields.
    """

    match: Match
    starting_at: str
    status: str
    updated_at: str
    is_tossed: bool = False
    is_over: bool = False
    # The reported deliveries per innings, which may differ from the file.
    played: tuple[tuple[Delivery, ...], ...] = ()
    closed: int = 0
    # Indexes of deliveries that are missing from the balls, duplicated, or corrected.
    withheld: frozenset[int] = frozenset()
    duplicated: frozenset[int] = frozenset()
    corrected: frozenset[int] = frozenset()


def innings_numbers(match: Match) -> list[int]:
    """SportMonks' number for each innings; super overs start at 5."""
    regular_count = sum(not innings.is_super_over for innings in match.innings)
    regular, super_overs = (
        iter(range(1, regular_count + 1)),
        iter(range(max(4, regular_count) + 1, 1000)),
    )
    return [next(super_overs if innings.is_super_over else regular) for innings in match.innings]
