"""Work under a lock is done by one at a time, and stops when the lock is lost."""

import asyncio

import pytest

from tally.kit.clock import ManualClock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock


class TableOfLocks:
    """What several instances share: who has which lock, until when."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.held: dict[str, tuple[str, float]] = {}

    def owner(self, name: str) -> "OwnLocks":
        return OwnLocks(self, name)


class OwnLocks:
    """The locks of one instance, in the shared table, with faults to order."""

    def __init__(self, table: TableOfLocks, owner: str) -> None:
        self.table = table
        self.owner = owner
        self.fault: Exception | None = None
        self.hangs = False
        self.extended = 0

    async def _reach(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fault is not None:
            raise self.fault

    async def acquire(self, name: str, seconds: float) -> bool:
        await self._reach()
        owner, until = self.table.held.get(name, ("", 0.0))
        if until > self.table.clock.monotonic() and owner != self.owner:
            return False
        self.table.held[name] = (self.owner, self.table.clock.monotonic() + seconds)
        return True

    async def extend(self, name: str, seconds: float) -> bool:
        await self._reach()
        if self.table.held.get(name, ("", 0.0))[0] != self.owner:
            return False
        self.extended += 1
        self.table.held[name] = (self.owner, self.table.clock.monotonic() + seconds)
        return True

    async def release(self, name: str) -> None:
        await self._reach()
        if self.table.held.get(name, ("", 0.0))[0] == self.owner:
            del self.table.held[name]


@pytest.fixture
def table(clock: ManualClock) -> TableOfLocks:
    return TableOfLocks(clock)


def working(clock: ManualClock, locks: Locks, seconds: float) -> "asyncio.Task[str]":
    """Work of `seconds` under the lock "match:1", held for 10 s at a time."""

    async def work() -> str:
        await clock.sleep(seconds)
        return "done"

    return asyncio.create_task(run_with_lock(locks, clock, "match:1", 10, work))


async def test_the_lock_is_let_go_when_the_work_is_done(
    clock: ManualClock, table: TableOfLocks
) -> None:
    task = working(clock, table.owner("a"), 1)
    await clock.until_sleeping(2)
    assert table.held["match:1"][0] == "a"
    await clock.advance(1)
    assert await task == "done"
    assert table.held == {}
    assert clock.sleeping == 0


async def test_long_work_keeps_its_lock(clock: ManualClock, table: TableOfLocks) -> None:
    """It is extended in good time, so that nobody else ever gets it."""
    own = table.owner("a")
    task = working(clock, own, 60)
    await clock.until_sleeping(2)
    for _ in range(11):
        await clock.advance(5)
        assert not await table.owner("b").acquire("match:1", 10)
    await clock.advance(5)
    assert await task == "done"
    assert own.extended >= 11


async def test_where_another_has_the_lock_nothing_is_done(
    clock: ManualClock, table: TableOfLocks
) -> None:
    await table.owner("b").acquire("match:1", 10)
    with pytest.raises(LockedElsewhere):
        await working(clock, table.owner("a"), 1)
    assert table.held["match:1"][0] == "b"


async def test_an_instance_that_died_is_taken_over_when_its_lock_expires(
    clock: ManualClock, table: TableOfLocks
) -> None:
    await table.owner("dead").acquire("match:1", 10)
    await clock.advance(10)
    task = working(clock, table.owner("a"), 1)
    await clock.until_sleeping(2)
    await clock.advance(1)
    assert await task == "done"


async def test_work_whose_lock_was_taken_is_cancelled(
    clock: ManualClock, table: TableOfLocks
) -> None:
    """And the new owner's lock is left alone."""
    task = working(clock, table.owner("a"), 60)
    await clock.until_sleeping(2)
    table.held["match:1"] = ("b", 1000)
    await clock.advance(4)
    with pytest.raises(LockLost):
        await task
    assert table.held["match:1"] == ("b", 1000)


@pytest.mark.parametrize("fault", ["error", "silence"])
async def test_work_goes_on_through_a_fault_but_not_past_its_lock(
    clock: ManualClock, table: TableOfLocks, fault: str
) -> None:
    """A table out of reach is asked again while the lock still holds, and the work is over before it does not."""
    own = table.owner("a")
    task = working(clock, own, 60)
    await clock.until_sleeping(2)
    if fault == "error":
        own.fault = ConnectionError("no table")
    else:
        own.hangs = True
    await clock.advance(9)
    assert not task.done()
    own.hangs = False
    await clock.advance(1)
    with pytest.raises(LockLost):
        await task


async def test_a_fault_that_passes_costs_nothing(clock: ManualClock, table: TableOfLocks) -> None:
    own = table.owner("a")
    task = working(clock, own, 20)
    await clock.until_sleeping(2)
    own.fault = ConnectionError("no table")
    await clock.advance(4)
    own.fault = None
    await clock.advance(16)
    assert await task == "done"


async def test_the_error_of_the_work_is_its_own_and_the_lock_is_let_go(
    clock: ManualClock, table: TableOfLocks
) -> None:
    async def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await run_with_lock(table.owner("a"), clock, "match:1", 10, work)
    assert table.held == {}


async def test_cancelled_work_lets_go_of_its_lock(clock: ManualClock, table: TableOfLocks) -> None:
    task = working(clock, table.owner("a"), 60)
    await clock.until_sleeping(2)
    task.cancel()
    await asyncio.wait({task})
    assert table.held == {}


async def test_a_lock_that_cannot_be_released_does_not_spoil_the_work(
    clock: ManualClock, table: TableOfLocks
) -> None:
    own = table.owner("a")
    task = working(clock, own, 1)
    await clock.until_sleeping(2)
    own.fault = ConnectionError("no table")
    await clock.advance(1)
    assert await task == "done"
