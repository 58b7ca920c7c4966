"""Watchers receive every change of every process, with one poll per second for all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tally.errors import Unavailable
from tally.kit.change_poller import POLL_SECONDS, ChangePoller
from tally.kit.clock import ManualClock


@dataclass
class Counters:
    """Numbers by name; records polls and reads, and fails on request."""

    numbers: dict[str, int] = field(default_factory=dict)
    polls: list[list[str]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    changes: list[tuple[str, int, int]] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)
    is_broken: bool = False
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def versions(self, names: Sequence[str]) -> Mapping[str, int]:
        self.polls.append(list(names))
        if self.is_broken:
            raise Unavailable("The store is unavailable")
        return {name: self.numbers[name] for name in names if name in self.numbers}

    async def read(self, name: str) -> int | None:
        self.reads.append(name)
        await self.is_open.wait()
        if self.is_broken:
            raise Unavailable("The store is unavailable")
        return self.numbers.get(name)

    def record_change(self, name: str, before: int, after: int) -> None:
        self.changes.append((name, before, after))


@pytest.fixture
def counters() -> Counters:
    counters = Counters({"a": 1, "b": 1})
    counters.is_open.set()
    return counters


@asynccontextmanager
async def polling(
    counters: Counters, clock: ManualClock, on_removed: Callable[[str], None] | None = None
) -> AsyncIterator[ChangePoller[str, int]]:
    async with ChangePoller(
        clock,
        versions=counters.versions,
        read=counters.read,
        version=lambda number: number,
        on_change=counters.record_change,
        on_removed=on_removed,
    ) as poller:
        yield poller


async def test_a_change_by_another_process_is_published_within_a_second(
    counters: Counters, clock: ManualClock
) -> None:
    """Once, with the previous and the current state; unchanged objects are not read."""
    async with polling(counters, clock) as poller:
        with poller.watch("a", 1), poller.watch("b", 1):
            counters.numbers["a"] = 4
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
            await clock.advance(POLL_SECONDS)
    assert counters.changes == [("a", 1, 4)]
    assert counters.reads == ["a"]
    assert counters.polls == [["a", "b"], ["a", "b"]]


@pytest.mark.parametrize("is_local", [True, False], ids=["this process", "another process"])
async def test_a_removal_is_published_until_the_watcher_leaves(
    counters: Counters, clock: ManualClock, is_local: bool
) -> None:
    """Other objects are not read. A failed poll removes nothing."""
    async with polling(counters, clock, counters.removals.append) as poller:
        with poller.watch("a", 1), poller.watch("b", 1):
            counters.is_broken = True
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
            assert counters.removals == []
            counters.is_broken = False
            del counters.numbers["a"]
            if is_local:
                poller.refresh("a")
                await clock.advance(0)
                assert counters.removals == ["a"]
            await clock.advance(POLL_SECONDS)
            await clock.advance(POLL_SECONDS)
    assert set(counters.removals) == set(counters.reads) == {"a"}
    assert counters.changes == []


async def test_a_change_by_this_process_is_published_immediately(
    counters: Counters, clock: ManualClock
) -> None:
    """Without a poll, and only for watched objects."""
    async with polling(counters, clock) as poller:
        with poller.watch("a", 1):
            counters.numbers.update(a=2, b=2)
            poller.refresh("a")
            poller.refresh("b")
            await clock.advance(0)
    assert counters.changes == [("a", 1, 2)]
    assert counters.polls == []


async def test_many_watchers_of_one_object_share_one_poll(
    counters: Counters, clock: ManualClock
) -> None:
    """Polling stops when the last watcher leaves."""
    async with polling(counters, clock) as poller:
        with poller.watch("a", 1):
            with poller.watch("a", 1), poller.watch("a", 1):
                await clock.until_sleeping()
                await clock.advance(POLL_SECONDS)
            await clock.advance(POLL_SECONDS)
        assert counters.polls == [["a"], ["a"]]
        await clock.advance(10 * POLL_SECONDS)
        assert counters.polls == [["a"], ["a"]]
        with poller.watch("b", 1):
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
    assert counters.polls[2:] == [["b"]]


async def test_changes_during_a_read_are_not_lost(counters: Counters, clock: ManualClock) -> None:
    """They cause another read, and versions never go back."""
    counters.is_open.clear()
    async with polling(counters, clock) as poller:
        with poller.watch("a", 1):
            counters.numbers["a"] = 2
            poller.refresh("a")
            await clock.advance(0)
            for number in (3, 4):
                counters.numbers["a"] = number
                poller.refresh("a")
            counters.is_open.set()
            await clock.advance(0)
    assert counters.reads == ["a", "a"]
    assert counters.changes == [("a", 1, 4)]


async def test_polling_continues_while_the_store_is_unavailable(
    counters: Counters, clock: ManualClock
) -> None:
    """A change is published when the store is available again."""
    async with polling(counters, clock) as poller:
        with poller.watch("a", 1):
            counters.numbers["a"] = 2
            counters.is_broken = True
            poller.refresh("a")
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
            assert counters.changes == []
            counters.is_broken = False
            await clock.advance(POLL_SECONDS)
    assert counters.changes == [("a", 1, 2)]


async def test_a_deleted_object_is_not_a_change(counters: Counters, clock: ManualClock) -> None:
    """Deleting a watched object publishes nothing."""
    async with polling(counters, clock) as poller:
        with poller.watch("a", 1):
            del counters.numbers["a"]
            poller.refresh("a")
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
    assert counters.changes == []


async def test_leaving_during_a_read_cancels_it(counters: Counters, clock: ManualClock) -> None:
    """Nothing is published, and closing does not wait for the read."""
    counters.is_open.clear()
    async with polling(counters, clock) as poller:
        with poller.watch("a", 1):
            counters.numbers["a"] = 2
            poller.refresh("a")
            await clock.advance(0)
        counters.is_open.set()
        await clock.advance(0)
        with poller.watch("b", 1):
            counters.is_open.clear()
            poller.refresh("b")
            await clock.advance(0)
    assert counters.changes == []
