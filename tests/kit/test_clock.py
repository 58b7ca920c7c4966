"""A manual clock wakes sleepers in the order of their deadlines."""

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tally.kit.clock import DeadlineExceeded, ManualClock, SystemClock, finish_within, rfc3339


def test_all_representations_of_a_time_agree() -> None:
    """Seconds, milliseconds and datetime are the same time, each with its precision."""
    moment = datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
    clock = ManualClock(moment)
    assert clock.now() == moment
    assert clock.milliseconds() == 1_770_091_506_789
    assert clock.seconds() == 1_770_091_506
    assert clock.time_ns() == 1_770_091_506_789_012_000


def test_the_system_clock_returns_the_system_time() -> None:
    before = time.time_ns()
    now = SystemClock().time_ns()
    assert before <= now <= time.time_ns()
    assert SystemClock().monotonic() <= time.monotonic()


async def test_the_system_clock_sleeps_long_enough() -> None:
    started = time.monotonic()
    await SystemClock().sleep(0.001)
    assert time.monotonic() - started >= 0.001


async def test_sleepers_wake_in_the_order_of_their_deadlines() -> None:
    """Each wakes at its own deadline, even if the clock passes several in one step."""
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 3))
        group.create_task(sleeper("early", 1))
        group.create_task(sleeper("middle", 2))
        await clock.until_sleeping(3)
        await clock.advance(10)
    assert woken == [("early", 1), ("middle", 2), ("late", 3)]
    assert clock.monotonic() == 10


async def test_a_sleeping_loop_runs_as_often_as_time_allows() -> None:
    clock = ManualClock()
    rounds: list[float] = []

    async def loop() -> None:
        while True:
            await clock.sleep(2.5)
            rounds.append(clock.monotonic())

    task = asyncio.create_task(loop())
    await clock.until_sleeping()
    await clock.advance(10)
    task.cancel()
    assert rounds == [2.5, 5, 7.5, 10]


async def test_a_cancelled_sleeper_is_removed() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.until_sleeping()
    task.cancel()
    await asyncio.wait({task})
    assert clock.sleeping == 0
    await clock.advance(10)
    assert task.cancelled()


async def test_a_sleep_of_zero_yields_once() -> None:
    clock = ManualClock()
    await clock.sleep(0)
    assert clock.sleeping == 0


async def test_work_within_its_deadline_returns_its_result() -> None:
    clock = ManualClock()

    async def work() -> str:
        await clock.sleep(1)
        return "done"

    task = asyncio.create_task(finish_within(clock, 2, work()))
    await clock.until_sleeping(2)
    await clock.advance(1)
    assert await task == "done"
    assert clock.sleeping == 0


async def test_work_past_its_deadline_has_ended_when_the_error_is_raised() -> None:
    clock = ManualClock()
    cleaned_up = False

    async def work() -> None:
        nonlocal cleaned_up
        try:
            await clock.sleep(100)
        finally:
            cleaned_up = True

    task = asyncio.create_task(finish_within(clock, 2, work()))
    await clock.until_sleeping(2)
    await clock.advance(2)
    with pytest.raises(DeadlineExceeded, match="not finished within 2 s"):
        await task
    assert cleaned_up


async def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await finish_within(ManualClock(), 2, work())


def test_rfc3339_uses_utc_and_whole_seconds() -> None:
    """Years are padded, so that texts sort by time."""
    plus_two = timezone(timedelta(hours=2))
    assert rfc3339(datetime(2024, 1, 15, 12, 30, 0, 999, tzinfo=plus_two)) == "2024-01-15T10:30:00Z"
    assert rfc3339(datetime(999, 1, 1, tzinfo=UTC)) == "0999-01-01T00:00:00Z"
