"""The course of a match as a list of steps: the toss, each innings' beginning, every delivery, the result, the end of coverage.

A broadcast stands somewhere on this list. By hand it moves step by step; at a speed, where it is
follows from the time alone.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from tally.sim.sportmonks.match import Delivery, Match

StepKind = Literal["toss", "begin", "delivery", "close", "finish", "leave"]

TOSS: Final = -1800.0
BALL: Final = 35.0
NEW_OVER: Final = 40.0
BREAK: Final = 1200.0
SUPER_OVER_BREAK: Final = 600.0
RESULT: Final = 30.0
COVERAGE: Final = 600.0
WASHED_OUT: Final = 7200.0


class TimelineStep(msgspec.Struct, frozen=True):
    """Something that happens, and when: in seconds of the match, from its start."""

    kind: StepKind
    at: float
    innings: int = -1


class MatchProgress(msgspec.Struct, frozen=True):
    """How far a match has come after some steps."""

    is_tossed: bool = False
    is_over: bool = False
    has_left: bool = False
    balls: tuple[int, ...] = ()
    closed: int = 0

    @property
    def is_between(self) -> bool:
        """Whether no innings is going on."""
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


def match_progress(steps: tuple[TimelineStep, ...]) -> MatchProgress:
    """Where a match stands after all of these."""
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
    """How far a match has come: the deliveries of each innings that has begun, and what is known besides."""

    match: Match
    starting_at: str
    status: str
    updated_at: str
    is_tossed: bool = False
    is_over: bool = False
    # As the scorers report them, which need not be what the file says.
    played: tuple[tuple[Delivery, ...], ...] = ()
    closed: int = 0
    # Deliveries, counted through the match, that are in the scores but not among the balls yet, or
    # are there twice.
    withheld: frozenset[int] = frozenset()
    doubled: frozenset[int] = frozenset()
    corrected: frozenset[int] = frozenset()


def innings_numbers(match: Match) -> list[int]:
    """SportMonks' number of each innings."""
    plain = sum(not innings.is_super_over for innings in match.innings)
    places, extras = iter(range(1, plain + 1)), iter(range(max(4, plain) + 1, 1000))
    return [next(extras if innings.is_super_over else places) for innings in match.innings]
