"""A move under load: writers that record what was acknowledged, and a process that is killed."""

import asyncio
import itertools
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tally.app import open_engine
from tally.kit.clock import SystemClock
from tally.kit.tasks import cancel_all
from tally.move.comparison import Comparer, Difference
from tally.move.sides import Sides, open_sides
from tally.move.state import (
    EMBEDDED,
    MoveState,
    SideName,
    load_state,
    other_side,
    request_switch,
)
from tally.settings import Settings, read_settings
from tally.store.api import Delete, Engine, Get, Put, Scan, Transaction, Update
from tally.store.errors import StoreUnavailable, WritesPaused
from tally.store.expressions import F
from tally.store.schema import Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.values import Item
from tests.move.move_program import COUNTERS, EXPIRING, NOTES, TABLES

ROOT: Final = Path(__file__).parent.parent.parent
CLOCK: Final = SystemClock()
COUNTER_KEYS: Final = [{"group": f"g{number % 3}", "number": number} for number in range(9)]
WAIT_SECONDS: Final = 200.0
PAUSE_SECONDS: Final = 0.04
MAX_COMPARISONS: Final = 20


def environment(data_dir: Path, url: str, prefix: str) -> dict[str, str]:
    """The settings of a move between a data directory and a service."""
    return {
        "TALLY_DATA_DIR": str(data_dir),
        "TALLY_DYNAMODB_ENDPOINT": url,
        "TALLY_DYNAMODB_TABLE_PREFIX": prefix,
        "AWS_ACCESS_KEY_ID": "tally",
        "AWS_SECRET_ACCESS_KEY": "tally-secret",
        "AWS_REGION": "us-east-1",
    }


def settings_of(variables: Mapping[str, str], side: SideName) -> Settings:
    engine = "sqlite" if side == EMBEDDED else "dynamodb"
    return read_settings({**variables, "TALLY_STORE_ENGINE": engine})


class MovingProcess:
    """The process that moves, while the context is open; it can be killed and started again."""

    def __init__(self, variables: Mapping[str, str], to: SideName, log: Path) -> None:
        self._variables = {**os.environ, **variables}
        self._to = to
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.move.move_program",
                self._to,
                cwd=ROOT,
                env=self._variables,
                stdout=log,
                stderr=log,
            )

    async def kill(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.terminate()
        return await self._process.wait()

    def check_running(self) -> None:
        assert self._process is not None
        text = self._log.read_text(encoding="utf-8", errors="replace")
        assert self._process.returncode is None, text


async def kill_at_random(process: MovingProcess, rng: random.Random, times: int) -> None:
    """Kill the process several times, and start it again at once."""
    for _ in range(times):
        await asyncio.sleep(rng.uniform(0.1, 8.0))
        process.check_running()
        await process.kill()
        await process.start()


@dataclass
class Acknowledged:
    """What was acknowledged: unique items, deleted ones, and increments per counter.

    Outcomes of unacknowledged writes are unknown.
    """

    items: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    increments: Counter[int] = field(default_factory=Counter)
    unknown_items: set[str] = field(default_factory=set)
    unknown_increments: Counter[int] = field(default_factory=Counter)
    writes: int = 0
    rejected: int = 0


class Servers:
    """Writers on the active store, as servers use it; a switch makes them open the other one."""

    def __init__(self, variables: Mapping[str, str], active: SideName) -> None:
        self.acknowledged = Acknowledged()
        self._variables = variables
        self._active = active
        self._numbers = itertools.count()
        self._rng = random.Random(71)
        self._tasks: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def writing(self, writers: int) -> AsyncIterator[None]:
        """Write inside the context."""
        tasks = [asyncio.create_task(self._write_until_cancelled()) for _ in range(writers)]
        self._tasks = tasks
        try:
            yield
        finally:
            await cancel_all(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.result()

    def check_running(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def wait_for_writes(self, count: int, *checks: Callable[[], None]) -> None:
        """Wait until so many more writes were acknowledged."""
        end = self.acknowledged.writes + count
        await wait_for(self._variables, lambda _: self.acknowledged.writes > end, *checks)

    async def _write_until_cancelled(self) -> None:
        side = self._active
        while True:
            async with open_engine(settings_of(self._variables, side), CLOCK) as engine:
                side = await self._write_until_moved(engine, side)

    async def _write_until_moved(self, engine: Engine, side: SideName) -> SideName:
        while True:
            try:
                await self._write(engine)
            except WritesPaused:
                self.acknowledged.rejected += 1
                active = (await read_state(self._variables)).active
                if active != side:
                    return active
                await asyncio.sleep(0.05)
            except StoreUnavailable:
                await asyncio.sleep(0.05)
            await asyncio.sleep(PAUSE_SECONDS)  # as slow as the emulators apply changes

    async def _write(self, engine: Engine) -> None:
        choice = self._rng.random()
        if choice < 0.5:
            await self._put(engine)
        elif choice < 0.85:
            await self._increment(engine)
        else:
            await self._delete(engine)

    async def _put(self, engine: Engine) -> None:
        known, name = self.acknowledged, f"n{next(self._numbers)}"
        known.unknown_items.add(name)
        note = Put(NOTES, {"id": name, "text": f"text of {name}", "size": 10})
        entry = Put(EXPIRING, {"id": name[:2], "at": name, "expires": 4_000_000_000})
        await engine.transact(Transaction((note, entry)))
        known.unknown_items.discard(name)
        known.items[name] = f"text of {name}"
        known.writes += 1

    async def _increment(self, engine: Engine) -> None:
        known, key = self.acknowledged, self._rng.choice(COUNTER_KEYS)
        number: Any = key["number"]
        known.unknown_increments[number] += 1
        actions = (F("count").add(1), F("color").set(self._rng.choice(["red", "blue"])))
        await engine.update(Update(COUNTERS, key, actions))
        known.unknown_increments[number] -= 1
        known.increments[number] += 1
        known.writes += 1

    async def _delete(self, engine: Engine) -> None:
        known = self.acknowledged
        if not known.items:
            return
        name = self._rng.choice([*known.items])
        del known.items[name]
        known.unknown_items.add(name)
        await engine.delete(Delete(NOTES, {"id": name}))
        known.unknown_items.discard(name)
        known.deleted.add(name)
        known.writes += 1


async def read_state(variables: Mapping[str, str]) -> MoveState:
    async with _embedded(variables) as engine:
        state = await load_state(engine)
    assert state is not None
    return state


@asynccontextmanager
async def _embedded(variables: Mapping[str, str]) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(Path(variables["TALLY_DATA_DIR"])) as engine:
        yield engine


async def switch(variables: Mapping[str, str], to: SideName) -> None:
    async with _embedded(variables) as engine:
        await request_switch(engine, to)


async def wait_for(
    variables: Mapping[str, str],
    is_reached: Callable[[MoveState], bool],
    *checks: Callable[[], None],
) -> MoveState:
    """Wait until the state of the move satisfies a condition."""
    async with asyncio.timeout(WAIT_SECONDS), _embedded(variables) as engine:
        while True:
            state = await load_state(engine)
            if state is not None and is_reached(state):
                return state
            assert state is None or not state.failure, state.failure
            for check in checks:
                check()
            await asyncio.sleep(0.1)


async def check_acknowledged(engine: Engine, known: Acknowledged) -> None:
    """Every acknowledged write is in the store, and each increment once."""
    notes = {item["id"]: item async for item in _scan(engine, NOTES)}
    entries = {item["at"] async for item in _scan(engine, EXPIRING)}
    for name, text in known.items.items():
        if name not in known.unknown_items:
            assert notes.get(name) == {"id": name, "text": text, "size": 10}, name
            assert name in entries, name
    assert not known.deleted & notes.keys()
    for counter in COUNTER_KEYS:
        number: Any = counter["number"]
        found = (await engine.get(Get(COUNTERS, counter, consistent=True))).item
        count = 0 if found is None else found["count"]
        smallest = known.increments[number]
        largest = smallest + known.unknown_increments[number]
        assert smallest <= count <= largest, (counter, count, smallest, largest)


async def _scan(engine: Engine, table: Table) -> AsyncIterator[Item]:
    start: Item | None = None
    while True:
        page = await engine.scan(Scan(table, start=start, consistent=True))
        for item in page.items:
            yield item
        start = page.next
        if start is None:
            return


async def wait_until_equal(sides: Sides, active: SideName) -> None:
    """Wait until the passive store has caught up; fail with the differences that remain."""

    async def wait() -> None:
        await asyncio.sleep(1.0)

    engines = sides.side(active).engine, sides.side(other_side(active)).engine
    comparer = Comparer(*engines, CLOCK, wait)
    differences: list[Difference] = []
    for _ in range(MAX_COMPARISONS):
        differences = [
            difference
            for table in TABLES
            for difference in (await comparer.compare(table)).differences
        ]
        if not differences:
            return
    assert differences == []


@asynccontextmanager
async def opened_sides(variables: Mapping[str, str]) -> AsyncIterator[Sides]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(open_sides(read_settings(variables), CLOCK))
