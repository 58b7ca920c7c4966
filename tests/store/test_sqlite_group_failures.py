"""A job that fails inside a group leaves nothing behind and fails no other job of the group."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tally.store.api import Get, Put, Scan, Transaction, TransactionResult, Update, WriteResult
from tally.store.errors import InvalidKey, StorageDamaged
from tally.store.expressions import F
from tally.store.schema import GlobalIndex, S, Table
from tally.store.sqlite import SqliteEngine
from tally.store.sqlite.layout import rows_name
from tests.store.streams import next_changes
from tests.store.tables import embedded

STREAMED = Table("streamed", S("id"), stream="NEW_IMAGE")
PLAIN = Table("plain", S("id"), ttl="expires")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with embedded(tmp_path, STREAMED, PLAIN) as opened:
        yield opened


async def damage(engine: SqliteEngine, table: Table, name: str) -> None:
    await write_item(engine, table, name, b"\xc1")


async def write_item(engine: SqliteEngine, table: Table, name: str, packed: bytes) -> None:
    """Replace the packed item at a key, behind the engine's back."""
    statement = f"UPDATE {rows_name(table.name)} SET item = ? WHERE pk = ?"  # noqa: S608 - a constant
    values = packed, name.encode()
    await engine._writer.submit(lambda connection: connection.execute(statement, values))


def packed_items(engine: SqliteEngine, table: Table) -> dict[str, bytes]:
    rows: Any = engine._connection.execute(
        f"SELECT pk, item FROM {rows_name(table.name)} ORDER BY pk"  # noqa: S608 - a constant
    )
    return {pk.decode(): item for pk, item in rows}


async def test_a_damaged_item_fails_only_the_put_that_replaces_it(engine: SqliteEngine) -> None:
    """A table with a stream reads what a put replaces."""
    for name in ("bad", "other"):
        await engine.put(Put(STREAMED, {"id": name}))
    position = await engine.stream_position(STREAMED)
    await damage(engine, STREAMED, "bad")
    puts = [engine.put(Put(STREAMED, {"id": name, "new": True})) for name in ("bad", "one", "two")]
    update = engine.update(Update(STREAMED, {"id": "other"}, (F("new").set(True),)))
    outcomes = await asyncio.gather(*puts, update, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StorageDamaged, *[WriteResult] * 3]
    changes = await next_changes(engine, STREAMED, 3, position)
    assert [change.key["id"] for change in changes] == ["one", "two", "other"]


async def test_a_damaged_item_fails_only_the_bulk_transaction_that_replaces_it(
    engine: SqliteEngine,
) -> None:
    await engine.put(Put(STREAMED, {"id": "bad"}))
    position = await engine.stream_position(STREAMED)
    await damage(engine, STREAMED, "bad")
    operations = [Transaction((Put(STREAMED, {"id": name, "v": 1}),)) for name in ("one", "bad")]
    failed, pinged = await asyncio.gather(
        engine.transact_each(operations), engine.ping(), return_exceptions=True
    )
    assert isinstance(failed, StorageDamaged)
    assert pinged is None
    assert [*packed_items(engine, STREAMED)] == ["bad"]
    await engine.put(Put(STREAMED, {"id": "end"}))
    [change] = await next_changes(engine, STREAMED, 1, position)
    assert change.key == {"id": "end"}


async def test_bulk_transactions_that_a_new_index_makes_invalid_fail_alone(
    engine: SqliteEngine,
) -> None:
    indexed = Table("plain", S("id"), ttl="expires", indexes=(GlobalIndex("by-g", S("g")),))
    items: list[dict[str, Any]] = [{"id": "0"}, {"id": "1"}, {"id": "2", "g": 5}, {"id": "3"}]
    _, outcomes = await asyncio.gather(
        engine.ensure_table(indexed),
        engine.transact_each([Transaction((Put(PLAIN, item),)) for item in items]),
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [TransactionResult, TransactionResult, InvalidKey, TransactionResult]
    assert len((await engine.scan(Scan(PLAIN))).items) == 3


async def test_a_sweep_that_finds_a_damaged_item_can_be_repeated(engine: SqliteEngine) -> None:
    """It does not forget the other items that are due."""
    for name in ("a", "b", "c"):
        await engine.put(Put(PLAIN, {"id": name, "expires": 1_999_990_000}))
    packed = packed_items(engine, PLAIN)["b"]
    await damage(engine, PLAIN, "b")
    for _ in range(2):
        with pytest.raises(StorageDamaged):
            await engine.sweep(PLAIN, 2_000_000_000, 100)
    await write_item(engine, PLAIN, "b", packed)
    while await engine.sweep(PLAIN, 2_000_000_000, 100):
        pass
    assert packed_items(engine, PLAIN) == {}


@pytest.mark.parametrize("expires", [10**30, -(10**30)])
async def test_an_expiry_time_beyond_all_calendars_never_comes(
    engine: SqliteEngine, expires: int
) -> None:
    item = {"id": "a", "expires": expires}
    await engine.put(Put(PLAIN, item))
    await engine.sweep(PLAIN, 2_000_000_000, 100)
    assert (await engine.get(Get(PLAIN, {"id": "a"}))).item == item
