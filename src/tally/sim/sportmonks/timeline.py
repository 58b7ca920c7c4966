"""The course of a match as a list of steps: the toss, each innings' beginning, every delivery, the result, the end of coverage.

A broadcast stands somewhere on this list. By hand it moves step by step; at a speed, where it is
follows from the time alone.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from tally.sim.sportmonks.match import Match

StepKind = Literal["toss", "begin", "delivery", "close", "finish", "leave"]

TOSS: Final = -1800.0
BALL: Final = 35.0
NEW_OVER: Final = 40.0
BREAK: Final = 1200.0
SUPER_OVER_BREAK: Final = 600.0
RESULT: Final = 30.0
COVERAGE: Final = 600.0
WASHED_OUT: Final = 7200.0


class Step(msgspec.Struct, frozen=True):
    """Something that happens, and when: in seconds of the match, from its start."""

    kind: StepKind
    at: float
    innings: int = -1


class Standing(msgspec.Struct, frozen=True):
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


def steps_of(match: Match) -> tuple[Step, ...]:
    return tuple(_steps(match))


def _steps(match: Match) -> Iterator[Step]:
    yield Step("toss", TOSS)
    now = 0.0
    for index, innings in enumerate(match.innings):
        if index:
            now += SUPER_OVER_BREAK if innings.is_super_over else BREAK
        yield Step("begin", now, index)
        over = -1
        for delivery in innings.deliveries:
            now += BALL + (NEW_OVER if delivery.over != over else 0)
            over = delivery.over
            yield Step("delivery", now, index)
        now += 5
        yield Step("close", now, index)
    now += RESULT if match.innings else WASHED_OUT
    yield Step("finish", now)
    yield Step("leave", now + COVERAGE)


def standing(steps: tuple[Step, ...]) -> Standing:
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
    return Standing(kinds["toss"], kinds["finish"], kinds["leave"], tuple(balls), closed)
