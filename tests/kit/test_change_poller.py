"""Those who watch are told of every change, by whichever process, with one look a second for all of them together."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tally.errors import Unavailable
from tally.kit.change_poller import POLL_SECONDS, ChangePoller
from tally.kit.clock import ManualClock


@dataclass
class Shelf:
    """Numbers by name that anybody may raise; counts who looks, and fails while told to."""

    numbers: dict[str, int] = field(default_factory=dict)
    looks: list[list[str]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    told: list[tuple[str, int, int]] = field(default_factory=list)
    is_broken: bool = False
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def marks(self, names: Sequence[str]) -> Mapping[str, int]:
        self.looks.append(list(names))
        if self.is_broken:
            raise Unavailable("The store is unavailable")
        return {name: self.numbers[name] for name in names if name in self.numbers}

    async def read(self, name: str) -> int | None:
        self.reads.append(name)
        await self.is_open.wait()
        if self.is_broken:
            raise Unavailable("The store is unavailable")
        return self.numbers.get(name)

    def tell(self, name: str, before: int, after: int) -> None:
        self.told.append((name, before, after))


@pytest.fixture
def shelf() -> Shelf:
    made = Shelf({"a": 1, "b": 1})
    made.is_open.set()
    return made


@asynccontextmanager
async def followed(shelf: Shelf, clock: ManualClock) -> AsyncIterator[ChangePoller[str, int]]:
    async with ChangePoller(
        clock,
        versions=shelf.marks,
        read=shelf.read,
        version=lambda number: number,
        on_change=shelf.tell,
    ) as follower:
        yield follower


async def test_a_change_made_elsewhere_is_told_within_a_second(
    shelf: Shelf, clock: ManualClock
) -> None:
    """Once, with how it was and how it is; what did not change is not even read."""
    async with followed(shelf, clock) as follower:
        with follower.watch("a", 1), follower.watch("b", 1):
            shelf.numbers["a"] = 4
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
            await clock.advance(POLL_SECONDS)
    assert shelf.told == [("a", 1, 4)]
    assert shelf.reads == ["a"]
    assert shelf.looks == [["a", "b"], ["a", "b"]]


async def test_a_change_made_here_is_told_at_once(shelf: Shelf, clock: ManualClock) -> None:
    """Without a look, and only where somebody watches."""
    async with followed(shelf, clock) as follower:
        with follower.watch("a", 1):
            shelf.numbers.update(a=2, b=2)
            follower.refresh("a")
            follower.refresh("b")
            await clock.advance(0)
    assert shelf.told == [("a", 1, 2)]
    assert shelf.looks == []


async def test_many_who_watch_one_thing_are_one_look(shelf: Shelf, clock: ManualClock) -> None:
    """And nobody looks any more when the last has left."""
    async with followed(shelf, clock) as follower:
        with follower.watch("a", 1):
            with follower.watch("a", 1), follower.watch("a", 1):
                await clock.until_sleeping()
                await clock.advance(POLL_SECONDS)
            await clock.advance(POLL_SECONDS)
        assert shelf.looks == [["a"], ["a"]]
        await clock.advance(10 * POLL_SECONDS)
        assert shelf.looks == [["a"], ["a"]]
        with follower.watch("b", 1):
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
    assert shelf.looks[2:] == [["b"]]


async def test_changes_while_one_is_read_are_not_lost(shelf: Shelf, clock: ManualClock) -> None:
    """They are read once more, and never told backwards."""
    shelf.is_open.clear()
    async with followed(shelf, clock) as follower:
        with follower.watch("a", 1):
            shelf.numbers["a"] = 2
            follower.refresh("a")
            await clock.advance(0)
            for number in (3, 4):
                shelf.numbers["a"] = number
                follower.refresh("a")
            shelf.is_open.set()
            await clock.advance(0)
    assert shelf.reads == ["a", "a"]
    assert shelf.told == [("a", 1, 4)]


async def test_a_store_that_is_away_is_asked_again(shelf: Shelf, clock: ManualClock) -> None:
    """What could not be looked at or read is told when it can be."""
    async with followed(shelf, clock) as follower:
        with follower.watch("a", 1):
            shelf.numbers["a"] = 2
            shelf.is_broken = True
            follower.refresh("a")
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
            assert shelf.told == []
            shelf.is_broken = False
            await clock.advance(POLL_SECONDS)
    assert shelf.told == [("a", 1, 2)]


async def test_what_is_gone_is_nothing_new(shelf: Shelf, clock: ManualClock) -> None:
    """A thing that was deleted while it is watched is not told of."""
    async with followed(shelf, clock) as follower:
        with follower.watch("a", 1):
            del shelf.numbers["a"]
            follower.refresh("a")
            await clock.until_sleeping()
            await clock.advance(POLL_SECONDS)
    assert shelf.told == []


async def test_leaving_in_the_middle_of_a_reading_ends_it(shelf: Shelf, clock: ManualClock) -> None:
    """Nothing is told to nobody, and the end does not wait."""
    shelf.is_open.clear()
    async with followed(shelf, clock) as follower:
        with follower.watch("a", 1):
            shelf.numbers["a"] = 2
            follower.refresh("a")
            await clock.advance(0)
        shelf.is_open.set()
        await clock.advance(0)
        with follower.watch("b", 1):
            shelf.is_open.clear()
            follower.refresh("b")
            await clock.advance(0)
    assert shelf.told == []
