"""Two things measured in turns, so that a noisy moment hits both; the ratio is the median of the rounds' ratios."""

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

Run: TypeAlias = Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the result: what was measured, our cost and the peer's, in microseconds an operation, and what to reach."""

    section: str
    what: str
    microseconds: float
    peer: str
    peer_microseconds: float
    ratio: float
    goal: str = ""
    met: bool | None = None
    note: str = ""


async def take_turns(ours: Run, peer: Run, rounds: int) -> tuple[float, float, float]:
    """Median microseconds an operation of both, and the median of ours / peer."""
    await ours()
    await peer()
    costs = [(await _cost(ours), await _cost(peer)) for _ in range(rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*costs, strict=True))
    return mine, theirs, statistics.median(one / other for one, other in costs)


async def _cost(run: Run) -> float:
    begun = time.perf_counter()
    count = await run()
    return (time.perf_counter() - begun) / count * 1e6
