"""Only one instance works under a lock, and the work stops when the lock is lost."""

import asyncio

import pytest

from tally.kit.clock import ManualClock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock


class LockTable:
    """The locks of all instances, with owners and expiry times."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.locks: dict[str, tuple[str, float]] = {}

    def owner(self, name: str) -> "InstanceLocks":
        return InstanceLocks(self, name)


class InstanceLocks:
    """The locks of one instance in the shared table, with injectable faults."""

    def __init__(self, table: LockTable, owner: str) -> None:
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
        owner, until = self.table.locks.get(name, ("", 0.0))
        if until > self.table.clock.monotonic() and owner != self.owner:
            return False
        self.table.locks[name] = (self.owner, self.table.clock.monotonic() + seconds)
        return True

    async def extend(self, name: str, seconds: float) -> bool:
        await self._reach()
        if self.table.locks.get(name, ("", 0.0))[0] != self.owner:
            return False
        self.extended += 1
        self.table.locks[name] = (self.owner, self.table.clock.monotonic() + seconds)
        return True

    async def release(self, name: str) -> None:
        await self._reach()
        if self.table.locks.get(name, ("", 0.0))[0] == self.owner:
            del self.table.locks[name]


@pytest.fixture
def table(clock: ManualClock) -> LockTable:
    return LockTable(clock)


def start_work(clock: ManualClock, locks: Locks, seconds: float) -> "asyncio.Task[str]":
    """Work for `seconds` under the lock "match:1", which expires after 10 s."""

    async def work() -> str:
        await clock.sleep(seconds)
        return "done"

    return asyncio.create_task(run_with_lock(locks, clock, "match:1", 10, work))


async def test_the_lock_is_released_after_the_work(clock: ManualClock, table: LockTable) -> None:
    task = start_work(clock, table.owner("a"), 1)
    await clock.until_sleeping(2)
    assert table.locks["match:1"][0] == "a"
    await clock.advance(1)
    assert await task == "done"
    assert table.locks == {}
    assert clock.sleeping == 0


async def test_the_lock_is_extended_during_long_work(clock: ManualClock, table: LockTable) -> None:
    """Another instance never acquires it."""
    own = table.owner("a")
    task = start_work(clock, own, 60)
    await clock.until_sleeping(2)
    for _ in range(11):
        await clock.advance(5)
        assert not await table.owner("b").acquire("match:1", 10)
    await clock.advance(5)
    assert await task == "done"
    assert own.extended >= 11


async def test_nothing_runs_while_another_instance_holds_the_lock(
    clock: ManualClock, table: LockTable
) -> None:
    await table.owner("b").acquire("match:1", 10)
    with pytest.raises(LockedElsewhere):
        await start_work(clock, table.owner("a"), 1)
    assert table.locks["match:1"][0] == "b"


async def test_another_instance_takes_over_when_the_lock_expires(
    clock: ManualClock, table: LockTable
) -> None:
    await table.owner("dead").acquire("match:1", 10)
    await clock.advance(10)
    task = start_work(clock, table.owner("a"), 1)
    await clock.until_sleeping(2)
    await clock.advance(1)
    assert await task == "done"


async def test_work_is_cancelled_when_its_lock_is_lost(
    clock: ManualClock, table: LockTable
) -> None:
    """The new owner keeps the lock."""
    task = start_work(clock, table.owner("a"), 60)
    await clock.until_sleeping(2)
    table.locks["match:1"] = ("b", 1000)
    await clock.advance(4)
    with pytest.raises(LockLost):
        await task
    assert table.locks["match:1"] == ("b", 1000)


@pytest.mark.parametrize("fault", ["error", "silence"])
async def test_work_survives_a_fault_but_not_the_expiry_of_its_lock(
    clock: ManualClock, table: LockTable, fault: str
) -> None:
    """Extension is retried until the lock expires; then the work is cancelled."""
    own = table.owner("a")
    task = start_work(clock, own, 60)
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


async def test_a_transient_fault_does_not_affect_the_work(
    clock: ManualClock, table: LockTable
) -> None:
    own = table.owner("a")
    task = start_work(clock, own, 20)
    await clock.until_sleeping(2)
    own.fault = ConnectionError("no table")
    await clock.advance(4)
    own.fault = None
    await clock.advance(16)
    assert await task == "done"


async def test_an_error_of_the_work_is_raised_and_the_lock_released(
    clock: ManualClock, table: LockTable
) -> None:
    async def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await run_with_lock(table.owner("a"), clock, "match:1", 10, work)
    assert table.locks == {}


async def test_cancelled_work_releases_its_lock(clock: ManualClock, table: LockTable) -> None:
    task = start_work(clock, table.owner("a"), 60)
    await clock.until_sleeping(2)
    task.cancel()
    await asyncio.wait({task})
    assert table.locks == {}


async def test_a_failed_release_does_not_affect_the_result(
    clock: ManualClock, table: LockTable
) -> None:
    own = table.owner("a")
    task = start_work(clock, own, 1)
    await clock.until_sleeping(2)
    own.fault = ConnectionError("no table")
    await clock.advance(1)
    assert await task == "done"
