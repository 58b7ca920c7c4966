"""The sweeper pauses after a clock jump, and the scrub reports damage."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tally.app import open_application
from tally.instance.maintenance import StoreMaintenance
from tally.kit.clock import EPOCH, ManualClock
from tally.kit.metrics import Metrics
from tally.settings import Settings
from tally.store.api import Get, Put
from tally.store.clock_guard import confirm_clock
from tally.store.schema import S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.sqlite.files import FILE_NAME, PAGE_BYTES
from tally.store.store import Store
from tests.store.streams import next_changes

READINGS = Table("readings", S("id"), ttl="expires_at")
START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400


class JumpingClock(ManualClock):
    """A clock whose wall time can jump; the monotonic time does not."""

    def __init__(self, start: datetime = START) -> None:
        super().__init__(start)
        self.offset = timedelta()

    def time_ns(self) -> int:
        return super().time_ns() + round(self.offset.total_seconds()) * 1_000_000_000


class Program:
    """The maintenance of one process."""

    def __init__(self, engine: SqliteEngine, clock: JumpingClock) -> None:
        self.engine = engine
        self.clock = clock
        self.metrics = Metrics()
        store = Store(engine, clock)
        self.store = store
        self._maintenance = StoreMaintenance(engine, store, clock, [READINGS], self.metrics)
        self._jobs = {job.name: job for job in self._maintenance.jobs()}
        (self.probe,) = self._maintenance.probes()

    async def run(self, job: str) -> None:
        await self._jobs[job].run()

    async def sweep_after(self, seconds: float) -> bool:
        """Advance the clock and sweep; return whether the reading still exists."""
        await self.clock.advance(seconds)
        await self.run("ttl-sweep")
        return (await self.engine.get(Get(READINGS, {"id": "due"}))).item is not None

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name)


async def write_reading(engine: SqliteEngine, days: int) -> None:
    await engine.ensure_table(READINGS)
    expires = int((START - EPOCH).total_seconds()) + days * DAY
    await engine.put(Put(READINGS, {"id": "due", "expires_at": expires}))


async def test_a_clock_that_is_ahead_for_a_minute_deletes_nothing(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        program = Program(engine, JumpingClock())
        await write_reading(engine, days=90)
        assert await program.sweep_after(60)
        program.clock.offset = timedelta(days=100)
        assert await program.sweep_after(10)
        assert await program.sweep_after(60)
        assert program.metric("tally_store_sweep_paused") == 1
        with pytest.raises(Exception, match="tally store confirm-clock"):
            await program.probe.check()
        program.clock.offset = timedelta()
        assert await program.sweep_after(60)
        assert program.metric("tally_store_sweep_paused") == 0
        await program.probe.check()
        # The sweeper runs all the time, and the reading becomes due.
        assert not [await program.sweep_after(DAY) for _ in range(91)][-1]


async def test_a_restart_does_not_forget_the_jump(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        await write_reading(engine, days=90)
        assert await Program(engine, JumpingClock()).sweep_after(60)
    async with open_sqlite(tmp_path) as engine:
        clock = JumpingClock()
        clock.offset = timedelta(days=100)
        program = Program(engine, clock)
        assert await program.sweep_after(60)
        assert await program.sweep_after(60)
        await confirm_clock(clock, engine)
        assert not await program.sweep_after(60)


async def test_a_weekend_without_tally_is_not_a_jump(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        await write_reading(engine, days=1)
        assert await Program(engine, JumpingClock()).sweep_after(60)
        later = Program(engine, JumpingClock(START + timedelta(days=2)))
        assert not await later.sweep_after(60)


async def test_a_clock_that_goes_back_and_returns_does_not_pause(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        await write_reading(engine, days=90)
        program = Program(engine, JumpingClock())
        assert await program.sweep_after(60)
        for offset in (timedelta(days=-50), timedelta()):
            program.clock.offset = offset
            assert await program.sweep_after(60)
            assert program.metric("tally_store_sweep_paused") == 0


async def test_the_scrub_reports_a_damaged_page(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        await engine.ensure_table(READINGS)
        for number in range(200):
            await engine.put(Put(READINGS, {"id": f"reading-{number}", "text": "x" * 300}))
    async with open_sqlite(tmp_path) as engine:
        program = Program(engine, JumpingClock())
        await program.run("store-scrub")
        assert program.metric("tally_store_damaged") == 0
        assert program.metric("tally_store_last_scrub_timestamp_seconds") == program.clock.seconds()
        with (tmp_path / FILE_NAME).open("r+b") as file:
            file.seek(9 * PAGE_BYTES + 2000)
            file.write(b"garbage")
        with pytest.raises(Exception, match="page 10"):
            await program.run("store-scrub")
        assert program.metric("tally_store_damaged") == 1


async def test_an_instance_pauses_its_sweeper(tmp_path: Path) -> None:
    clock = JumpingClock()
    settings = Settings(data_dir=tmp_path / "data", backends=("devices",))
    async with open_application(settings, clock) as application:
        runner = application.job_runner()
        await runner.run("ttl-sweep")
        clock.offset = timedelta(days=100)
        await runner.run("ttl-sweep")
        metrics = application.metrics.registry
        assert metrics.get_sample_value("tally_store_sweep_paused") == 1


async def test_the_sweep_trims_streams(tmp_path: Path) -> None:
    clock = JumpingClock()
    table = Table("followed", S("id"), stream="NEW_IMAGE")
    hours = 2
    async with open_sqlite(
        tmp_path, lambda: clock.time_ns() / 1e9, stream_retention=hours * 3_600
    ) as engine:
        program = Program(engine, clock)
        await write_reading(engine, days=90)
        await engine.create_table(table)
        await engine.put(Put(table, {"id": "old"}))
        [old] = await next_changes(engine, table, 1)
        await program.sweep_after(hours * 3_600 - 60)
        assert await next_changes(engine, table, 1) == [old]
        await program.sweep_after(120)
        await engine.put(Put(table, {"id": "new"}))
        [change] = await next_changes(engine, table, 1)
        assert change.key == {"id": "new"}
