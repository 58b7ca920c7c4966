"""The writer process runs bulk writes transparently, also when it ends unexpectedly."""

import asyncio
import json
import math
import os
import pickle
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.store.api import Capacity, Put, Scan, Transaction, TransactionResult
from tally.store.errors import (
    OutcomeUnknown,
    Reason,
    StorageUnwritable,
    StoreError,
    TransactionCancelled,
)
from tally.store.schema import GlobalIndex, S, Table
from tally.store.sqlite import SqliteEngine
from tally.store.sqlite.bulk import router
from tally.store.sqlite.bulk.ipc import MessageConnection
from tally.store.sqlite.bulk.writer_process import WriterProcess
from tally.store.sqlite.directory import MARKER_NAME
from tally.store.sqlite.files import FILE_NAME
from tests.embedded.harness import is_running, wait_until
from tests.faults.audit import audit
from tests.log_capture import captured_log
from tests.store.tables import PLAIN, STRINGS, all_items, embedded, once, stored


def many(name: str) -> list[Transaction]:
    """Enough transactions for the writer process."""
    return [once(f"{name}-{number}", "ann") for number in range(20)]


async def started_process(engine: SqliteEngine) -> WriterProcess:
    """Trigger the writer process and wait until it is ready."""
    await engine.transact_each([once("the first", "nobody")])
    assert engine.write_router._starting is not None
    await engine.write_router._starting
    process = engine.write_router.process
    assert process is not None
    await wait_until(lambda: process.ready.is_set() or process._ended.is_set())
    assert process.ready.is_set(), "it ended before it was ready"
    return process


def is_requested(engine: SqliteEngine) -> bool:
    """Whether the router has started the process."""
    return engine.write_router._starting is not None


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate two CPUs."""
    monkeypatch.setattr(router, "_cpu_count", lambda: 2)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with embedded(tmp_path, PLAIN, STRINGS, writer_process_rate=1) as opened:
        yield opened


async def test_acknowledged_writes_are_readable(engine: SqliteEngine) -> None:
    process = await started_process(engine)
    outcomes = await engine.transact_each([once(f"{number}", "ann") for number in range(300)])
    assert outcomes == [TransactionResult(Capacity(write=4.0))] * 300
    assert await stored(engine, PLAIN, {"id": "299"}) == {"id": "299", "by": "ann"}
    assert len(await all_items(engine, Scan(STRINGS))) == 301
    assert engine.write_router.process is process


async def test_small_batches_use_the_thread_unless_the_process_is_busy(
    engine: SqliteEngine,
) -> None:
    process = await started_process(engine)
    before = process._number
    await engine.transact_each([once("a", "ann")])
    assert process._number == before
    await asyncio.gather(engine.transact_each(many("b")), engine.transact_each([once("c", "ann")]))
    assert process._number == before + 2
    engine.write_router._not_before = 0.0  # not started again, regardless of the rate
    await engine.transact_each([once("d", "ann")])
    assert engine.write_router.process is process
    assert process.ready.is_set()
    assert len(await all_items(engine, Scan(PLAIN))) == 1 + 1 + 20 + 1 + 1


async def test_rejected_transactions_get_their_reasons(engine: SqliteEngine) -> None:
    await started_process(engine)
    await engine.put(Put(PLAIN, {"id": "3", "by": "ann"}))
    outcomes = await engine.transact_each([once(f"{number}", "bob") for number in range(10)])
    [cancelled] = [outcome for outcome in outcomes if isinstance(outcome, TransactionCancelled)]
    assert outcomes[3] is cancelled
    assert cancelled.reasons[0].condition_failed
    assert cancelled.reasons[0].item == {"id": "3", "by": "ann"}
    assert [reason.code for reason in cancelled.reasons] == ["ConditionalCheckFailed", "None"]
    assert await stored(engine, STRINGS, {"id": "3", "at": "x"}) is None


async def test_concurrent_callers_get_their_own_results(engine: SqliteEngine) -> None:
    await started_process(engine)
    callers = [
        [once(f"{caller}-{number % 40}", f"{caller}") for number in range(caller, caller + 40)]
        for caller in range(20)
    ]
    outcome_lists = await asyncio.gather(
        *(engine.transact_each(batch) for batch in (*callers, *callers))
    )
    for one, other in zip(outcome_lists[:20], outcome_lists[20:], strict=True):
        done = [
            isinstance(first, TransactionResult) + isinstance(second, TransactionResult)
            for first, second in zip(one, other, strict=True)
        ]
        assert done == [1] * 40


async def test_a_concurrently_added_index_is_maintained(engine: SqliteEngine) -> None:
    await started_process(engine)
    layout = engine._layout(PLAIN)
    grown = Table("plain", partition=S("id"), indexes=(GlobalIndex("by-by", partition=S("by")),))
    await engine.ensure_table(grown)
    engine._registry._layouts = {
        **engine._registry._layouts,
        "plain": layout,
    }  # as before the change
    outcomes = await engine.transact_each([once(f"{number}", "bob") for number in range(10)])
    assert all(isinstance(outcome, TransactionResult) for outcome in outcomes)
    engine._registry.invalidate()
    found = await all_items(engine, Scan(grown, index="by-by"))
    assert {item["id"] for item in found if item["by"] == "bob"} == {
        f"{number}" for number in range(10)
    }


async def test_a_deleted_database_is_not_written(engine: SqliteEngine) -> None:
    await started_process(engine)
    there = engine.path
    there.rename(there.with_name("elsewhere"))
    try:
        with pytest.raises(StorageUnwritable, match="does not exist"):
            await engine.transact_each(many("a"))
        assert not there.exists()
    finally:
        there.with_name("elsewhere").rename(there)
    assert all(
        isinstance(outcome, TransactionResult) for outcome in await engine.transact_each(many("a"))
    )


async def test_a_replaced_database_is_not_written(tmp_path: Path, engine: SqliteEngine) -> None:
    async with embedded(tmp_path / "other", PLAIN, STRINGS):
        pass
    (tmp_path / "other" / FILE_NAME).rename(engine.path)
    with pytest.raises(StorageUnwritable, match="replaced"):
        await engine.transact_each(many("a"))
    assert engine.write_router._starting is not None
    await engine.write_router._starting
    process = engine.write_router.process
    assert process is not None
    await wait_until(process._ended.is_set)
    with pytest.raises(StorageUnwritable, match="replaced"):
        await engine.transact_each(many("b"))
    (tmp_path / MARKER_NAME).unlink()  # it names the database that was replaced
    assert (await audit(tmp_path))["plain"] == []


async def test_a_process_that_is_ready_after_closing_is_not_used(
    tmp_path: Path, engine: SqliteEngine
) -> None:
    late = WriterProcess(time.time, lambda: None)
    await late.start(engine.path, engine._writer.identity)
    await late.close()
    late._on_message(b"")
    assert not late.ready.is_set()
    assert not is_running(late.pid or 0)


@pytest.mark.soak
async def test_a_killed_process_loses_no_acknowledged_write(
    engine: SqliteEngine,
) -> None:
    """Pending requests fail with OutcomeUnknown.

    The thread continues, and later a new process starts.
    """
    process = await started_process(engine)
    before = {item["id"] for item in await all_items(engine, Scan(PLAIN))}
    acknowledged: set[str] = set()
    requested: set[str] = set()
    unknown: list[StoreError] = []
    halfway = asyncio.Event()

    async def caller(name: str) -> None:
        for turn in range(30):
            names = [f"{name}-{turn}-{number}" for number in range(50)]
            requested.update(names)
            try:
                outcomes = await engine.transact_each([once(key, name) for key in names])
            except OutcomeUnknown as error:
                unknown.append(error)
                continue
            assert all(isinstance(outcome, TransactionResult) for outcome in outcomes)
            acknowledged.update(names)
            if turn == 5:
                halfway.set()

    async def killer() -> None:
        await halfway.wait()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        await wait_until(lambda: len(process._pending) == 4)  # until all of them wait for it
        os.kill(process.pid, signal.SIGKILL)

    run = f"{len(before)}"
    await asyncio.gather(killer(), *(caller(f"{run}-{number}") for number in range(4)))
    stored_now = {item["id"] for item in await all_items(engine, Scan(PLAIN))} - before
    assert acknowledged <= stored_now <= requested
    assert not process.ready.is_set()
    assert len(unknown) == 4
    engine.write_router._not_before = 0.0  # it would wait for a while
    assert await started_process(engine) is not process
    assert all(
        isinstance(outcome, TransactionResult)
        for outcome in await engine.transact_each(many(f"{run}-again"))
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_ignores_signals_and_ends_with_the_engine(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with embedded(tmp_path, PLAIN, STRINGS, writer_process_rate=1) as engine:
        pid = (await started_process(engine)).pid
        assert pid is not None
        os.kill(pid, number)
        waiting = asyncio.ensure_future(
            engine.transact_each([once(f"{index}", "ann") for index in range(300)])
        )
        await asyncio.sleep(0)
        await engine.close()
        assert all(isinstance(outcome, TransactionResult) for outcome in await waiting)
        assert not is_running(pid)
    assert len((await audit(tmp_path))["plain"]) == 301


PARENT = """
import asyncio, sys
from pathlib import Path
from tests.store.tables import PLAIN, STRINGS, embedded
from tests.store.test_sqlite_writer_process import started_process

async def main():
    async with embedded(Path(sys.argv[1]), PLAIN, STRINGS, writer_process_rate=1) as engine:
        print((await started_process(engine)).pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_the_process_ends_with_a_killed_engine(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    await parent.communicate()
    await wait_until(lambda: not is_running(pid))
    assert len((await audit(tmp_path))["plain"]) == 1


async def test_the_process_requires_the_write_rate_and_a_second_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embedded(tmp_path / "one", PLAIN, writer_process_rate=1_000) as engine:
        engine.write_router._window_start = math.inf  # a second that does not end
        await engine.transact_each(
            [Transaction((Put(PLAIN, {"id": f"{number}"}),)) for number in range(999)]
        )
        assert not is_requested(engine)
        await engine.transact_each([Transaction((Put(PLAIN, {"id": "1000"}),))])
        assert is_requested(engine)
    monkeypatch.setattr(router, "_cpu_count", lambda: 1)
    async with embedded(tmp_path / "two", PLAIN, writer_process_rate=1) as engine:
        await engine.transact_each(
            [Transaction((Put(PLAIN, {"id": f"{number}"}),)) for number in range(999)]
        )
        assert not is_requested(engine)


async def test_the_thread_writes_if_the_process_cannot_start(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with captured_log() as log:
        assert isinstance((await engine.transact_each([once("a", "ann")]))[0], TransactionResult)
        assert engine.write_router._starting is not None
        await engine.write_router._starting
    [line] = log.getvalue().splitlines()
    assert json.loads(line)["action"] == "writer_process_start_failed"
    assert isinstance((await engine.transact_each([once("b", "ann")]))[0], TransactionResult)


@given(
    messages=st.lists(st.binary(max_size=300), max_size=8),
    cuts=st.lists(st.integers(1, 200), max_size=20),
)
def test_messages_are_reassembled_from_any_chunks(messages: list[bytes], cuts: list[int]) -> None:
    found: list[bytes] = []
    line = MessageConnection(found.append, lambda: None)
    stream = b"".join(len(message).to_bytes(4, "big") + message for message in messages)
    for cut in cuts:
        line.data_received(stream[:cut])
        stream = stream[cut:]
    line.data_received(stream)
    assert found == messages


def test_errors_are_transferred_between_processes() -> None:
    refusal = TransactionCancelled(
        [Reason("None"), Reason("ConditionalCheckFailed", "no", {"id": "a", "n": 1})]
    )
    came = pickle.loads(pickle.dumps(refusal))  # noqa: S301
    assert (type(came), str(came), came.reasons) == (type(refusal), str(refusal), refusal.reasons)
