"""The readiness probe of the store names what an installation or an upgrade has not created yet."""

from dataclasses import replace
from pathlib import Path

import pytest

from tally.errors import Unavailable
from tally.instance.readiness import store_probe
from tally.instance.repository.probes import ProbeRepository
from tally.kit.clock import ManualClock
from tally.store.schema import GlobalIndex, S, Table
from tally.store.sqlite import open_sqlite
from tally.store.store import Store

BY_TEAM, BY_CITY = GlobalIndex("by-team", S("team")), GlobalIndex("by-city", S("city"))
PLAYERS = Table("players", S("id"), indexes=(BY_TEAM, BY_CITY))


async def test_missing_tables_and_then_missing_indexes_are_named(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with open_sqlite(tmp_path) as engine:
        probe = store_probe(engine, Store(engine, clock), clock, [PLAYERS])
        for table in ProbeRepository.tables:
            await engine.create_table(table)
        with pytest.raises(Unavailable, match="Missing tables: players"):
            await probe.check()
        await engine.create_table(replace(PLAYERS, indexes=(BY_TEAM,)))
        with pytest.raises(Unavailable, match="Missing indexes: players/by-city"):
            await probe.check()
        await engine.ensure_table(PLAYERS)
        await probe.check()
