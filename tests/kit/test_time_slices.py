"""Long computations run one turn at a time, and everything else runs between two turns."""

import asyncio
from itertools import pairwise

from tally.kit.time_slices import TimeSlices


class CountingClock:
    """A monotonic clock on which each look takes a tenth of a millisecond."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks / 10_000


async def compute(slices: TimeSlices, name: str, steps: int, log: list[str]) -> None:
    while steps:
        async with slices as deadline:
            log.append(name)
            while steps and slices.monotonic() < deadline:
                steps -= 1


async def test_a_turn_ends_by_time() -> None:
    log: list[str] = []
    await compute(TimeSlices(CountingClock(), seconds=0.001), "a", 36, log)
    # Ten looks at the clock per millisecond, the last of which ends the turn.
    assert log == ["a"] * 4


async def test_turns_alternate_in_the_order_of_their_requests() -> None:
    slices, log = TimeSlices(CountingClock(), seconds=0.001), list[str]()
    async with asyncio.TaskGroup() as group, slices:
        for name in ("a", "b", "c"):
            group.create_task(compute(slices, name, 18, log))
        await asyncio.sleep(0)
    assert log == ["a", "b", "c"] * 2


async def test_ready_callbacks_run_between_two_turns() -> None:
    slices, log = TimeSlices(CountingClock(), seconds=0.001), list[str]()

    async def serve_requests() -> None:
        while log.count("a") + log.count("b") < 6:
            log.append("request")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(serve_requests())
        group.create_task(compute(slices, "a", 27, log))
        group.create_task(compute(slices, "b", 27, log))
    assert all("request" in pair for pair in pairwise(log)), log
    assert log.count("a") == log.count("b") == 3


async def test_a_cancelled_computation_passes_its_turn_on() -> None:
    slices, log = TimeSlices(), list[str]()
    async with slices:
        waiting = [asyncio.create_task(compute(slices, name, 1, log)) for name in "abc"]
        await asyncio.sleep(0)
        waiting[0].cancel()
    await asyncio.sleep(0)  # the next iteration grants the turn to b
    waiting[1].cancel()
    await asyncio.wait(waiting)
    assert log == ["c"]
    assert [task.cancelled() for task in waiting] == [True, True, False]
    await compute(slices, "d", 1, log)
    assert log == ["c", "d"]


async def test_a_failed_computation_ends_its_turn() -> None:
    slices, log = TimeSlices(), list[str]()
    try:
        async with slices:
            raise ValueError
    except ValueError:
        await compute(slices, "a", 1, log)
    assert log == ["a"]
