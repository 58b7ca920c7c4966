"""The writer thread completes every call, also when a job, a task or the store fails."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Delete,
    Get,
    Page,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
)
from tally.store.errors import ConditionFailed, StoreUnavailable, TransactionCancelled
from tally.store.expressions import F, not_exists
from tally.store.schema import GlobalIndex, N, S, Table
from tally.store.sqlite import SqliteEngine, files, open_sqlite
from tally.store.sqlite.layout import rows_name
from tests.faults.audit import audit
from tests.faults.write_groups import one_group
from tests.store.tables import NEVER_MADE

NOTES = Table(
    "notes",
    partition=S("id"),
    indexes=(GlobalIndex("by-kind", partition=S("kind"), sort=N("number")),),
)
PLAIN = Table("plain", partition=S("id"))


def note(number: int) -> dict[str, Any]:
    return {"id": f"note-{number:04}", "kind": f"kind-{number % 3}", "number": number}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path) as opened:
        await opened.create_table(NOTES)
        await opened.create_table(PLAIN)
        yield opened


async def ids(engine: SqliteEngine, table: Table = NOTES) -> set[str]:
    return {item["id"] for item in (await engine.scan(Scan(table))).items}


def faulty(connection: apsw.Connection) -> None:
    """A job with a bug: it writes and then fails."""
    rows = rows_name(PLAIN.name)
    connection.execute(f"INSERT INTO {rows} VALUES (x'62756767', x'', x'80', 0)")  # noqa: S608 - our table
    raise ZeroDivisionError("a bug")


async def test_a_failing_job_is_rolled_back_alone(engine: SqliteEngine, tmp_path: Path) -> None:
    """Its caller gets its error, and the other jobs of the group succeed."""
    with one_group(engine):
        before = [
            asyncio.ensure_future(engine.put(Put(NOTES, note(number)))) for number in range(20)
        ]
        await asyncio.sleep(0)  # a task sends its request when it first runs
        bug = engine._writer.submit(faulty)
        rejected = asyncio.ensure_future(engine.put(Put(NOTES, note(0), not_exists("id"))))
        plain = [
            asyncio.ensure_future(engine.put(Put(PLAIN, {"id": f"plain-{number}"})))
            for number in range(20)
        ]
        both = Transaction((Put(NOTES, note(100)), Put(NOTES, note(101), F("id").exists())))
        cancelled = asyncio.ensure_future(engine.transact(both))
        await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError):
        await bug
    with pytest.raises(ConditionFailed):
        await rejected
    with pytest.raises(TransactionCancelled):
        await cancelled
    await asyncio.gather(*before, *plain)
    assert await ids(engine) == {note(number)["id"] for number in range(20)}
    assert await ids(engine, PLAIN) == {f"plain-{number}" for number in range(20)}
    await engine.close()
    await audit(tmp_path)


async def test_a_rolled_back_table_creation_is_retried(
    engine: SqliteEngine,
) -> None:
    """The group runs again job by job, and the registry's state of the first run is discarded."""
    later = Table("later", partition=S("id"))
    with one_group(engine):
        made = asyncio.ensure_future(engine.create_table(later))
        await asyncio.sleep(0)
        bug = engine._writer.submit(faulty)
    with pytest.raises(ZeroDivisionError):
        await bug
    await made
    await engine.put(Put(later, {"id": "first"}))
    assert await ids(engine, later) == {"first"}


async def test_a_table_whose_creation_failed_does_not_exist(engine: SqliteEngine) -> None:
    later = Table("later", partition=S("id"))

    def make_and_fail(connection: apsw.Connection) -> None:
        engine._writer_registry.create(connection, later)
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        await engine._writer.submit(make_and_fail)
    assert await engine.list_tables() == ["notes", "plain"]
    await engine.create_table(later)
    await engine.put(Put(later, {"id": "first"}))
    assert await ids(engine, later) == {"first"}


async def test_a_rolled_back_change_is_not_confused_with_another_process(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    """One store fails to create a table, another creates an index.

    Both have the same next generation.
    """
    later = Table("later", partition=S("id"))
    wider = Table(
        "plain", partition=S("id"), indexes=(GlobalIndex("by-kind", partition=S("kind")),)
    )

    def make_and_fail(connection: apsw.Connection) -> None:
        engine._writer_registry.create(connection, later)
        raise ZeroDivisionError("a bug")

    async with open_sqlite(tmp_path) as other:
        with pytest.raises(ZeroDivisionError):
            await engine._writer.submit(make_and_fail)
        await other.ensure_table(wider)
        await engine.put(Put(PLAIN, {"id": "first", "kind": "new"}))
        found = await other.query(Query(wider, F("kind") == "new", index="by-kind"))
        assert [item["id"] for item in found.items] == ["first"]
    await engine.close()
    await audit(tmp_path)


async def test_closing_completes_all_submitted_writes(tmp_path: Path) -> None:
    """Writes submitted before the close are durable; later ones are rejected."""
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(NOTES)
        writes = [
            asyncio.ensure_future(engine.put(Put(NOTES, note(number)))) for number in range(1_000)
        ]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(engine.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="closed"):
            await engine.put(Put(NOTES, note(1_000)))
        await closing
        await asyncio.gather(*writes)
    assert len((await audit(tmp_path))["notes"]) == 1_000


AFTER_CLOSE: dict[str, Callable[[SqliteEngine, Table], Awaitable[Any]]] = {
    "get": lambda engine, table: engine.get(Get(table, {"id": "x"})),
    "put": lambda engine, table: engine.put(Put(table, {"id": "x"})),
    "update": lambda engine, table: engine.update(Update(table, {"id": "x"}, (F("a").set(1),))),
    "delete": lambda engine, table: engine.delete(Delete(table, {"id": "x"})),
    "query": lambda engine, table: engine.query(Query(table, F("id") == "x")),
    "scan": lambda engine, table: engine.scan(Scan(table)),
    "batch_get": lambda engine, table: engine.batch_get(BatchGet(table, ({"id": "x"},))),
    "batch_write": lambda engine, table: engine.batch_write(BatchWrite(table, ({"id": "x"},))),
    "transact": lambda engine, table: engine.transact(Transaction((Put(table, {"id": "x"}),))),
    "transact_each": lambda engine, table: engine.transact_each(
        [Transaction((Put(table, {"id": "x"}),))]
    ),
    "transact_get": lambda engine, table: engine.transact_get(
        TransactionGet((Get(table, {"id": "x"}),))
    ),
    "create_table": lambda engine, table: engine.create_table(table),
    "ensure_table": lambda engine, table: engine.ensure_table(table),
    "drop_table": lambda engine, table: engine.drop_table(table.name),
    "describe_table": lambda engine, table: engine.describe_table(table.name),
    "list_tables": lambda engine, _table: engine.list_tables(),
    "sweep": lambda engine, table: engine.sweep(table, 0.0, 10),
    "ping": lambda engine, _table: engine.ping(),
}


@pytest.mark.parametrize("table", [NOTES, NEVER_MADE], ids=["a known table", "an unknown table"])
@pytest.mark.parametrize("operation", AFTER_CLOSE)
async def test_every_operation_on_a_closed_store_reports_it(
    engine: SqliteEngine, operation: str, table: Table
) -> None:
    await engine.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await AFTER_CLOSE[operation](engine, table)
    await engine.close()


async def test_page_reads_end_when_the_store_closes(
    engine: SqliteEngine,
) -> None:
    """They return a complete result or raise that the store is closed."""
    for start in range(0, 1_000, 25):
        await engine.batch_write(
            BatchWrite(NOTES, tuple(note(start + number) for number in range(25)))
        )
    reading = [asyncio.ensure_future(engine.scan(Scan(NOTES))) for _ in range(100)]
    await asyncio.sleep(0)
    await engine.close()
    ends = await asyncio.gather(*reading, return_exceptions=True)
    whole = [end for end in ends if isinstance(end, Page) and len(end.items) == 1_000]
    closed_errors = [
        end for end in ends if isinstance(end, StoreUnavailable) and "closed" in str(end)
    ]
    assert len(whole) + len(closed_errors) == len(ends)
    assert closed_errors


async def test_a_cancelled_task_does_not_affect_others(
    engine: SqliteEngine, tmp_path: Path
) -> None:
    """Every second writer is cancelled while it waits.

    Its write is applied completely or not at all.
    """
    with one_group(engine):
        tasks = [
            asyncio.ensure_future(engine.put(Put(NOTES, note(number)))) for number in range(200)
        ]
        pairs = [
            asyncio.ensure_future(
                engine.transact(
                    Transaction((Put(NOTES, note(number)), Put(NOTES, note(number + 1))))
                )
            )
            for number in range(1_000, 1_100, 2)
        ]
        await asyncio.sleep(0)
        given_up = [*tasks[::2], *pairs[::2]]
        for task in given_up:
            task.cancel()
        ends = await asyncio.gather(*given_up, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
    await asyncio.gather(*tasks[1::2], *pairs[1::2])
    await engine.ping()
    found = await ids(engine)
    assert {note(number)["id"] for number in range(1, 200, 2)} <= found
    for number in range(1_000, 1_100, 2):
        assert (note(number)["id"] in found) == (note(number + 1)["id"] in found)
    await engine.close()
    await audit(tmp_path)


async def test_a_store_with_cancelled_writers_can_be_closed(engine: SqliteEngine) -> None:
    with one_group(engine):
        tasks = [
            asyncio.ensure_future(engine.put(Put(NOTES, note(number)))) for number in range(100)
        ]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(engine.close())
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
    await closing
    assert {task.cancelled() for task in tasks} == {True}


async def test_a_locked_store_fails_all_writers_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred writers share one wait for the lock; then they can write again."""
    monkeypatch.setattr(files, "BUSY_TIMEOUT_SECONDS", 0.3)
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(NOTES)
        other = apsw.Connection(str(engine.path))
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        tasks = [
            asyncio.ensure_future(engine.put(Put(NOTES, note(number)))) for number in range(100)
        ]
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} == {StoreUnavailable}
        assert time.monotonic() - begun < 10
        other.execute("ROLLBACK")
        other.close()
        await engine.put(Put(NOTES, note(0)))
        assert await ids(engine) == {note(0)["id"]}
