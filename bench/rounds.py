"""Compares two workloads in alternating rounds, so that noise affects both.

The ratio is the median of the ratios of the rounds.
"""

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

TimedRun: TypeAlias = Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Line:
    """One result: the cost of a benchmark and of its baseline in µs per operation, and the target.

    The fields are the columns of the report.
    """

    section: str
    what: str
    microseconds: float
    peer: str
    peer_microseconds: float
    ratio: float
    goal: str = ""
    met: bool | None = None
    note: str = ""


def memory_line(section: str, what: str, before: float, after: float, suffix: str = "") -> Line:
    """Compare the memory in megabytes after a load with the memory before it."""
    return Line(
        section,
        f"memory after {what}",
        after,
        "before, MB",
        before,
        after / before,
        "at most 1.1 times",
        after <= before * 1.1,
        f"{before:.0f} MB before, {after:.0f} MB after{suffix}",
    )


async def measure_alternately(
    ours: TimedRun, peer: TimedRun, rounds: int
) -> tuple[float, float, float]:
    """Return the median µs per operation of both, and the median of ours / peer."""
    await ours()
    await peer()
    costs = [(await _cost(ours), await _cost(peer)) for _ in range(rounds)]
    our_median, peer_median = (statistics.median(column) for column in zip(*costs, strict=True))
    ratio = statistics.median(our_cost / peer_cost for our_cost, peer_cost in costs)
    return our_median, peer_median, ratio


async def _cost(run: TimedRun) -> float:
    started = time.perf_counter()
    count = await run()
    return (time.perf_counter() - started) / count * 1e6
