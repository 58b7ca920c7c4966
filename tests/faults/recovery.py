"""Opens a store after a crash and checks that it is consistent."""

from pathlib import Path

import apsw

from tally.store.api import Engine, Scan
from tally.store.schema import Table
from tally.store.sqlite import open_sqlite
from tally.store.sqlite.files import FILE_NAME
from tally.store.values import Item
from tests.faults.audit import MAX_PAGES, audit_table
from tests.store.tables import all_items

_TWO_DAYS = 2 * 86_400  # items expire at most a day late
_SWEEP_LIMIT = 1_000


async def recover(directory: Path) -> dict[str, list[Item]]:
    """Open the store and return all items by table; fail if it is inconsistent.

    Indexes match their tables, the file has no errors, and the sweeper finds all expired items.
    """
    async with open_sqlite(directory) as engine:
        tables = [await engine.describe_table(name) for name in await engine.list_tables()]
        found = {table.name: await audit_table(engine, table) for table in tables}
        for table in tables:
            await _check_expiry(engine, table, found[table.name])
    connection = apsw.Connection(str(directory / FILE_NAME), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    return found


async def _check_expiry(engine: Engine, table: Table, items: list[Item]) -> None:
    """Sweep after the last item has expired: only items without an expiry remain."""
    times = [float(item[table.ttl]) for item in items if table.ttl in item]
    if not times:
        return
    while await engine.sweep(table, max(times) + _TWO_DAYS, _SWEEP_LIMIT):
        pass
    left = await all_items(engine, Scan(table), MAX_PAGES)
    assert not [item for item in left if table.ttl in item], f"table {table.name} was not swept"
