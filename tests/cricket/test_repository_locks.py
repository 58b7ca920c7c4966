"""The repository of `cricket-locks`."""

import asyncio
import contextlib

import pytest

from tally.cricket.repository.locks import LockRepository, StoreLocks
from tally.kit.clock import ManualClock
from tally.kit.locks import LockedElsewhere, LockLost, run_with_lock
from tally.store.store import Store
from tests.cricket import factories

SECONDS = 10


@pytest.fixture
def locks(store: Store) -> LockRepository:
    return LockRepository(store)


def owner_locks(locks: LockRepository, clock: ManualClock, owner: str) -> StoreLocks:
    return StoreLocks(locks, clock, owner)


async def test_one_of_many_concurrent_acquires_succeeds(
    locks: LockRepository, clock: ManualClock
) -> None:
    """The owner cannot acquire it again."""
    name = factories.name("match")
    owners = [owner_locks(locks, clock, f"instance-{number}") for number in range(10)]
    taken = await asyncio.gather(*(owner.acquire(name, SECONDS) for owner in owners))
    assert sum(taken) == 1
    winner = owners[taken.index(True)]
    assert not await winner.acquire(name, SECONDS)
    assert await winner.acquire(factories.name("match"), SECONDS)


async def test_only_the_owner_releases_a_lock(locks: LockRepository, clock: ManualClock) -> None:
    """A release by another owner changes nothing."""
    name = factories.name("match")
    mine, theirs = owner_locks(locks, clock, "a"), owner_locks(locks, clock, "b")
    assert await mine.acquire(name, SECONDS)
    await theirs.release(name)
    assert not await theirs.extend(name, SECONDS)
    assert not await theirs.acquire(name, SECONDS)
    await mine.release(name)
    assert not await mine.extend(name, SECONDS)
    assert await theirs.acquire(name, SECONDS)


async def test_a_lock_expires_after_a_crash(locks: LockRepository, clock: ManualClock) -> None:
    """Then one waiter acquires it, and the former owner can neither extend nor release it."""
    name = factories.name("match")
    crashed = owner_locks(locks, clock, "crashed")
    assert await crashed.acquire(name, SECONDS)
    await clock.advance(SECONDS)
    assert not await owner_locks(locks, clock, "early").acquire(name, SECONDS)
    await clock.advance(0.001)
    waiting = [owner_locks(locks, clock, f"waiting-{number}") for number in range(6)]
    assert sum(await asyncio.gather(*(task.acquire(name, SECONDS) for task in waiting))) == 1
    assert not await crashed.extend(name, SECONDS)
    await crashed.release(name)
    assert not await owner_locks(locks, clock, "late").acquire(name, SECONDS)


async def test_a_lock_is_extended_from_now(locks: LockRepository, clock: ManualClock) -> None:
    """It is held as long as its owner extends it."""
    name = factories.name("match")
    mine, theirs = owner_locks(locks, clock, "a"), owner_locks(locks, clock, "b")
    assert await mine.acquire(name, SECONDS)
    for _ in range(5):
        await clock.advance(SECONDS - 1)
        assert await mine.extend(name, SECONDS)
        assert not await theirs.acquire(name, SECONDS)
    await clock.advance(SECONDS + 1)
    assert await theirs.acquire(name, SECONDS)


async def test_work_under_a_lock_never_overlaps(locks: LockRepository, clock: ManualClock) -> None:
    """Eight workers retry: each works alone and all of them finish."""
    name = factories.name("match")
    at_work: set[str] = set()
    turns: list[str] = []

    async def work(owner: str) -> None:
        at_work.add(owner)
        assert at_work == {owner}
        await asyncio.sleep(0)
        assert at_work == {owner}
        at_work.remove(owner)
        turns.append(owner)

    async def insist(owner: str) -> None:
        while owner not in turns:
            with contextlib.suppress(LockedElsewhere):
                await run_with_lock(
                    owner_locks(locks, clock, owner), clock, name, SECONDS, lambda: work(owner)
                )

    owners = [f"instance-{number}" for number in range(8)]
    await asyncio.gather(*(insist(owner) for owner in owners))
    assert sorted(turns) == sorted(owners)


async def test_work_stops_when_its_lock_is_lost(locks: LockRepository, clock: ManualClock) -> None:
    """An instance that was paused for too long does not run concurrently with its successor."""
    name = factories.name("match")
    started, finished = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()
        finished.set()

    held = asyncio.create_task(
        run_with_lock(owner_locks(locks, clock, "slow"), clock, name, SECONDS, work)
    )
    await started.wait()
    # As after a long pause: the lock expired and has another owner.
    now = clock.milliseconds() + SECONDS * 1000 + 1
    assert await locks.acquire(name, "successor", now, now + SECONDS * 1000)
    await clock.until_sleeping()
    await clock.advance(SECONDS / 3)
    with pytest.raises(LockLost):
        await held
    assert not finished.is_set()
    assert await locks.extend(name, "successor", now)
