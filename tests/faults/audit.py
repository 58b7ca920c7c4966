"""Checks a database: indexes and change logs against tables, columns with items, engine with rows.

Every crash test ends with `audit`. It runs SQLite's integrity check, reads all tables and indexes
through the engine and with SQL, and fails on the first mismatch.
"""

from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw

from tally.store.api import Engine, Query, Scan
from tally.store.expressions import F
from tally.store.schema import Index, Table, index_key
from tally.store.sqlite import open_sqlite
from tally.store.sqlite.change_log import decode_row, read_log
from tally.store.sqlite.declarations import read_stream_id
from tally.store.sqlite.files import FILE_NAME
from tally.store.sqlite.keys import encode_part
from tally.store.sqlite.layout import Layout, compile_layout, index_name, rows_name
from tally.store.sqlite.shapes import Shapes
from tally.store.values import Item, measure_item
from tests.store.streams import key_of, replay
from tests.store.tables import all_items

MAX_PAGES = 10_000
MAX_LOG_ROWS = 1_000_000


async def audit(directory: Path) -> dict[str, list[Item]]:
    """Check the store; return all items by table."""
    async with open_sqlite(directory) as engine:
        found = {
            name: await audit_table(engine, await engine.describe_table(name))
            for name in await engine.list_tables()
        }
        audit_file(directory, [await engine.describe_table(name) for name in found])
    return found


async def audit_table(engine: Engine, table: Table) -> list[Item]:
    """Complete and check a table's indexes through the engine; return its items."""
    await engine.ensure_table(table)  # continues the backfill of an index after a crash
    items = await all_items(engine, Scan(table), MAX_PAGES)
    for index in table.by_name.values():
        indexed = [_projected(table, index, item) for item in items if _in_index(index, item)]
        shown = await all_items(engine, Scan(table, index=index.name), MAX_PAGES)
        assert _sorted(table, shown) == _sorted(table, indexed), (
            f"index {index.name} differs from table {table.name}"
        )
        for partition in {item[index.partition.name] for item in indexed}:
            await _check_partition(engine, table, index, partition, indexed)
    return items


async def _check_partition(
    engine: Engine, table: Table, index: Index, partition: Any, indexed: list[Item]
) -> None:
    query = Query(table, F(index.partition.name) == partition, index=index.name)
    shown = await all_items(engine, query, MAX_PAGES)
    wanted = [item for item in indexed if item[index.partition.name] == partition]
    assert _sorted(table, shown) == _sorted(table, wanted), (
        f"index {index.name}, partition {partition}"
    )
    if index.sort is not None:
        keys = [encode_part(index.sort, item[index.sort.name]) for item in shown]
        assert keys == sorted(keys), f"index {index.name} is out of order"


def audit_file(directory: Path, tables: list[Table]) -> None:
    """Check the file with SQL: integrity, keys of rows, and index entries."""
    connection = apsw.Connection(str(directory / FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        assert connection.pragma("integrity_check") == "ok"
        with connection:
            for table in tables:
                _audit_rows(connection, table)
    finally:
        connection.close()


def _audit_rows(connection: apsw.Connection, table: Table) -> None:
    entries: dict[str, set[tuple[bytes, ...]]] = {name: set() for name in table.by_name}
    shapes = Shapes()
    shapes.load(connection)
    layout = compile_layout(table, shapes)
    records = connection.execute(
        "SELECT hour, prefix, low, high FROM expiry WHERE name = ?", (table.name,)
    ).fetchall()
    rows: Any = connection.execute(
        f"SELECT pk, sk, item, size FROM {rows_name(table.name)}"  # noqa: S608
    )
    items: list[Item] = []
    for pk, sk, packed, size in rows:
        item = layout.packer.unpack(packed, (pk, sk))
        items.append(item)
        assert (pk, sk) == _encoded(table.key, item), (
            f"table {table.name}: {item} is stored under another key"
        )
        assert size == measure_item(item), f"table {table.name}: {item} is stored with size {size}"
        until = _expires(table, item)
        assert until is None or _has_record(pk + sk, until, records), (
            f"table {table.name}: {item} has no expiry record"
        )
        for index in table.by_name.values():
            if _in_index(index, item):
                entries[index.name].add((*_encoded(index_key(index), item), pk, sk))
    for name, wanted in entries.items():
        stored = connection.execute(
            f"SELECT ipk, isk, pk, sk FROM {index_name(table.name, name)}"  # noqa: S608
        ).fetchall()
        assert set(stored) == wanted, (
            f"the entries of index {name} differ from the rows of table {table.name}"
        )
    _audit_log(connection, layout, items)


def _audit_log(connection: apsw.Connection, layout: Layout, items: list[Item]) -> None:
    """Replay the whole change log of a table: it must give the table."""
    table = layout.table
    if table.stream != "NEW_AND_OLD_IMAGES":
        return
    row: Any = connection.execute("SELECT declaration FROM tables WHERE name = ?", (table.name,))
    stream = read_stream_id(row.fetchone()[0])
    log = read_log(connection, stream, 0, MAX_LOG_ROWS)
    changes = [change for row in log for change in decode_row(layout, row, "")]
    expected = {key_of(table, item): item for item in items}
    assert replay(table, changes) == expected, f"the log of table {table.name} differs from it"


def _encoded(parts: tuple[Any, ...], item: Item) -> tuple[bytes, bytes]:
    first, *second = [encode_part(part, item[part.name]) for part in parts]
    return first, second[0] if second else b""


def _expires(table: Table, item: Item) -> float | None:
    until = item.get(table.ttl) if table.ttl else None
    return float(until) if isinstance(until, int | Decimal) else None


def _has_record(key: bytes, until: float, records: list[Any]) -> bool:
    """Whether an expiry record of its hour covers the row."""
    return any(
        hour == until // 3_600 and prefix + low <= key <= prefix + high
        for hour, prefix, low, high in records
    )


def _in_index(index: Index, item: Item) -> bool:
    return all(part.name in item for part in index_key(index))


def _projected(table: Table, index: Index, item: Item) -> Item:
    if index.projection.kind == "ALL":
        return item
    carried = {*table.key_names, *(part.name for part in index_key(index)), *index.projection.names}
    return {name: value for name, value in item.items() if name in carried}


def _sorted(table: Table, items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: tuple(str(item[name]) for name in table.key_names))
