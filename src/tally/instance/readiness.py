"""The readiness probe of the store: tables and indexes exist, and a durable write succeeds."""

import asyncio
from collections.abc import Iterable

from tally.errors import Unavailable
from tally.instance.repository.probes import ProbeRepository
from tally.kit.backend import Probe
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.readiness import STORE
from tally.store.api import Engine
from tally.store.damage import damage_unavailable
from tally.store.errors import StorageDamaged, StoreError
from tally.store.schema import Table
from tally.store.store import Store


def store_probe(engine: Engine, store: Store, clock: Clock, tables: Iterable[Table]) -> Probe:
    """Return the probe; its check raises Unavailable with what is missing.

    It checks the indexes of each table once: only an upgrade adds indexes.
    """
    expected = {table.name: table for table in tables}
    unchecked = {name: table for name, table in expected.items() if table.indexes}
    instance_id, repository = new_uuid(), ProbeRepository(store)

    async def check() -> None:
        store.damage.check()
        try:
            existing = await engine.list_tables()
            absent = sorted(expected.keys() - existing)
            if absent:
                raise Unavailable(f"Missing tables: {', '.join(absent)}")
            indexes = await _missing_indexes(engine, unchecked)
        except StorageDamaged as error:
            store.damage.record(error)
            raise damage_unavailable() from error
        except StoreError as error:
            raise Unavailable("The store does not respond") from error
        if indexes:
            raise Unavailable(f"Missing indexes: {', '.join(indexes)}")
        await repository.write(instance_id, clock.milliseconds())

    return Probe(STORE, check)


async def _missing_indexes(engine: Engine, unchecked: dict[str, Table]) -> list[str]:
    """Return absent and incomplete indexes; remove complete tables from `unchecked`."""

    async def missing(table: Table) -> list[str]:
        existing = (await engine.describe_table(table.name)).by_name
        building = await engine.building_indexes(table.name)
        absent = [
            f"{table.name}/{name}"
            for name in table.by_name
            if name not in existing or name in building
        ]
        if not absent:
            del unchecked[table.name]
        return absent

    found = await asyncio.gather(*(missing(table) for table in unchecked.values()))
    return sorted(name for names in found for name in names)
