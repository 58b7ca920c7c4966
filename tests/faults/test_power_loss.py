"""After a power failure at any moment, no acknowledged write is lost and no transaction is partial.

Indexes match their tables, and every item that expires is swept.

Each test records the system calls of a program, then replays crashes: at random points of the
recording, with any part of the unsynced changes on disk (`disk_model.py`). `make soak` explores
more points.
"""

import asyncio
import shutil
from functools import partial
from pathlib import Path

import apsw
import pytest

from tally.store.api import Put
from tally.store.errors import StoreError
from tally.store.sqlite import open_sqlite
from tally.store.values import Item
from tests.faults import crash_steps
from tests.faults.crash_checks import Progress, check
from tests.faults.crash_steps import READINGS, READINGS_LATER
from tests.faults.disk_model import write_image
from tests.faults.old_format import SESSION_COUNT, SESSIONS, create_old_store, session
from tests.faults.power_loss import (
    Crash,
    Harness,
    Recording,
    is_sync,
    open_harness,
    path_of,
    printed,
)
from tests.faults.recovery import recover
from tests.faults.system_calls import SystemCall
from tests.faults.test_crash import create_tables

BACKFILLED = 300
pytestmark = pytest.mark.soak


async def recover_data(disk: Path) -> dict[str, list[Item]]:
    return await recover(disk / "data")


def acknowledged(crash: Crash) -> set[str]:
    """The names of the writes that the program had acknowledged."""
    return {line.removeprefix("did ") for line in crash.lines if line.startswith("did ")}


def check_pairs(crash: Crash, found: dict[str, list[Item]]) -> None:
    """Pairs are complete or absent; all acknowledged exist."""
    first, second = ({item["id"] for item in found.get(name, [])} for name in ("first", "second"))
    assert first == second, f"{crash}: a transaction is partial"
    assert acknowledged(crash) <= first, f"{crash}: an acknowledged write is lost"


def check_writers(crash: Crash, found: dict[str, list[Item]]) -> None:
    """Compare the stored items with the output of `crash_writers`."""
    progress = Progress()
    for line in crash.lines:
        progress.add_line(line)
    check(found, progress)


async def record_new_store(harness: Harness) -> Recording:
    return await harness.record("open", harness.disk / "new" / "data")


async def check_new_store(harness: Harness, recording: Recording) -> int:
    """Replay crashes; return how many found a store with items."""
    with_items = 0

    async def recover_new(disk: Path) -> dict[str, list[Item]]:
        return await recover(disk / "new" / "data")

    for crash in harness.crashes(recording):
        found = await harness.replayer.run(crash.image, recover_new)
        check_pairs(crash, found)
        with_items += bool(found.get("first"))
    return with_items


async def test_a_new_store_in_a_new_directory(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        assert await check_new_store(harness, await record_new_store(harness)) > 0


async def test_the_replay_notices_a_missing_sync(tmp_path: Path) -> None:
    """Of the log, the database, or a directory; the store or SQLite notices a damaged database."""
    with open_harness(tmp_path) as harness:
        recording = await record_new_store(harness)
        for name in ("store.db-wal", "store.db", "/data", "/new", "/disk"):
            mutated = recording.without(partial(is_sync, suffix=name))
            with pytest.raises((AssertionError, StoreError, apsw.Error)):
                await check_new_store(harness, mutated)


async def test_the_replay_notices_an_early_acknowledgement(tmp_path: Path) -> None:
    """Each line is printed just before the sync of the log that precedes it."""
    with open_harness(tmp_path) as harness:
        recording = await record_new_store(harness)
        calls: list[SystemCall] = []
        for call in recording.calls:
            syncs = [
                at
                for at, earlier in enumerate(calls)
                if is_sync(earlier, suffix="store.db-wal") and earlier.begins
            ]
            calls.insert(syncs[-1] if printed(call) else len(calls), call)
        with pytest.raises(AssertionError, match="an acknowledged write is lost"):
            await check_new_store(harness, Recording(recording.root, recording.before, calls))


async def test_concurrent_writes_with_checkpoints_and_restarts_of_the_log(
    tmp_path: Path,
) -> None:
    """Single writes, batches, transactions, bulk batches and sweeps share commits."""
    with open_harness(tmp_path) as harness:
        await create_tables(harness.disk / "data")
        recording = await harness.record_writers(250)
        restarts = [call for call in recording.calls if is_log_header(call)]
        assert len(restarts) > 1
        assert recording.count("fdatasync", "store.db") > 1
        for crash in harness.crashes(recording):
            found = await harness.replayer.run(crash.image, recover_data)
            check_writers(crash, found)


def is_log_header(call: SystemCall) -> bool:
    return (
        call.name == "pwrite64" and path_of(call).endswith("-wal") and call.arguments[3].word == "0"
    )


async def test_recovery_after_a_power_failure(tmp_path: Path) -> None:
    """The power fails again while the store recovers from the log."""
    with open_harness(tmp_path) as harness:
        await create_tables(harness.disk / "data")
        recording = await harness.record_writers(100)
        *_, crash = (
            crash
            for crash in harness.crashes(recording)
            if len(crash.image.get("data/store.db-wal") or b"") > 50_000
        )
        shutil.rmtree(harness.disk / "data")
        write_image(crash.image, harness.disk)
        recording = await harness.record("open", harness.disk / "data")
        for again in harness.crashes(recording):
            found = await harness.replayer.run(again.image, recover_data)
            check_writers(crash, found)
            check_pairs(again, found)


async def test_an_upgrade_of_an_old_format(tmp_path: Path) -> None:
    """Without writes of its own it is complete or absent; with them it loses nothing."""
    with open_harness(tmp_path) as harness:
        create_old_store(harness.disk / "data")
        recording = await harness.record("open", harness.disk / "data")
        expected = sorted((session(number) for number in range(SESSION_COUNT)), key=by_number)
        for crash in harness.crashes(recording):
            found = await harness.replayer.run(crash.image, recover_data)
            assert sorted(found[SESSIONS.name], key=by_number) == expected, crash
            check_pairs(crash, found)


def by_number(item: Item) -> int:
    return int(item["number"])


async def test_a_backfill_while_others_write(tmp_path: Path) -> None:
    """The table has the old or the new indexes, and the new ones once they were acknowledged."""
    with open_harness(tmp_path) as harness:
        await create_tables(harness.disk / "data")
        old = [
            dict(crash_steps.batch_state("batch-0", 1, 1) or {}, group="old", id=f"{number:04}")
            for number in range(BACKFILLED)
        ]
        async with open_sqlite(harness.disk / "data") as engine:
            await asyncio.gather(*(engine.put(Put(READINGS, item)) for item in old))
        recording = await harness.record_writers(20, "ensure later", 20, "ensure first", 20)

        async def recover_declared(disk: Path) -> tuple[set[str], dict[str, list[Item]]]:
            async with open_sqlite(disk / "data") as engine:
                declared = set((await engine.describe_table(READINGS.name)).by_name)
            return declared, await recover_data(disk)

        for crash in harness.crashes(recording):
            declared, found = await harness.replayer.run(crash.image, recover_declared)
            assert declared in possible_indexes(crash), crash
            readings = found[READINGS.name]
            assert [item for item in readings if item["group"] == "old"] == old, crash
            others = [item for item in readings if item["group"] != "old"]
            check_writers(crash, {**found, READINGS.name: others})


def possible_indexes(crash: Crash) -> list[set[str]]:
    """Those of the last acknowledged declaration, and of one that was begun after it."""
    tables = {"ensure later": READINGS_LATER, "ensure first": READINGS}
    possible = [READINGS]
    for line in crash.lines:
        kind, _, command = line.partition(" ")
        if command in tables:
            possible = [tables[command], *(possible[:1] if kind == "begin" else [])]
    return [set(table.by_name) for table in possible]
