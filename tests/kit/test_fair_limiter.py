"""Long operations are limited in number, and waiting owners take turns."""

import asyncio

from tally.kit.fair_limiter import FairLimiter


class Operations:
    """Starts operations that hold a slot until they are ended."""

    def __init__(self, limit: int) -> None:
        self.limiter = FairLimiter(limit)
        self.started: list[str] = []
        self.running: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, owner: str, name: str) -> None:
        self.tasks[name] = asyncio.create_task(self._run(owner, name))
        await asyncio.sleep(0)

    async def end(self, name: str) -> None:
        self.running.pop(name).set()
        await self.tasks[name]
        await asyncio.sleep(0)  # the next operation starts

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.wait([self.tasks[name]])
        await asyncio.sleep(0)

    async def _run(self, owner: str, name: str) -> None:
        async with self.limiter.slot(owner):
            self.started.append(name)
            self.running[name] = asyncio.Event()
            await self.running[name].wait()


async def test_one_more_than_the_limit_waits() -> None:
    operations = Operations(limit=2)
    for name in ("one", "two", "three"):
        await operations.start("ann", name)
    assert operations.started == ["one", "two"]
    await operations.end("two")
    assert operations.started == ["one", "two", "three"]


async def test_waiting_owners_take_turns() -> None:
    operations = Operations(limit=1)
    await operations.start("ann", "ann 0")
    for number in (1, 2, 3):
        await operations.start("ann", f"ann {number}")
    for number in (1, 2):
        await operations.start("bob", f"bob {number}")
    order = ["ann 0", "ann 1", "bob 1", "ann 2", "bob 2", "ann 3"]
    for count, name in enumerate(order, 1):
        assert operations.started == order[:count]
        await operations.end(name)


async def test_a_cancelled_operation_releases_its_slot() -> None:
    operations = Operations(limit=1)
    await operations.start("ann", "one")
    await operations.start("ann", "two")
    await operations.cancel("one")
    assert operations.started == ["one", "two"]


async def test_a_cancelled_operation_leaves_the_queue() -> None:
    operations = Operations(limit=1)
    for name in ("one", "two", "three"):
        await operations.start("ann", name)
    await operations.cancel("two")
    await operations.end("one")
    assert operations.started == ["one", "three"]


async def test_a_slot_granted_to_a_cancelled_operation_is_passed_on() -> None:
    operations = Operations(limit=1)
    for name in ("one", "two", "three"):
        await operations.start("ann", name)
    operations.running.pop("one").set()
    await asyncio.sleep(0)  # one has passed its slot to two, which has not run yet
    await operations.cancel("two")
    assert operations.started == ["one", "three"]
