"""Pages learn of changes from the change log, whichever process makes them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from tally.console.live_updates import LiveUpdates
from tally.devices.repository.readings import DEVICE_READINGS
from tally.kit.clock import SystemClock
from tally.kit.hub import Hub
from tally.kit.metrics import Metrics
from tally.store.api import Delete, Put
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.store import Store

ONE, OTHER = "AA:BB:CC:DD:EE:01", "AA:BB:CC:DD:EE:02"


async def test_a_page_is_refreshed_by_changes_of_what_it_shows(tmp_path: Path) -> None:
    """First at once, then after changes by another process, and never by another device's."""
    clock = SystemClock()
    async with open_sqlite(tmp_path) as engine, open_sqlite(tmp_path) as elsewhere:
        await engine.create_table(DEVICE_READINGS)
        updates = LiveUpdates(Store(engine), Hub(clock, Metrics()), clock)
        async with (
            asyncio.timeout(60),
            aclosing(updates.device(ONE)) as one,
            aclosing(updates.device(OTHER)) as other,
        ):
            await anext(one)
            await anext(other)
            waiting = asyncio.ensure_future(_next(other))
            for number in range(2):
                await _store_reading(elsewhere, ONE, number)
                await anext(one)
            assert not waiting.done()
            await _store_reading(elsewhere, OTHER, 1)
            await waiting


async def test_changes_while_a_page_is_drawn_refresh_it_once(tmp_path: Path) -> None:
    clock = SystemClock()
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(DEVICE_READINGS)
        updates = LiveUpdates(Store(engine), Hub(clock, Metrics()), clock)
        async with (
            asyncio.timeout(60),
            aclosing(updates.device(ONE)) as one,
            aclosing(updates.device(ONE)) as watcher,
        ):
            await anext(one)
            await anext(watcher)
            for number in range(3):
                await _store_reading(engine, ONE, number)
                await anext(watcher)
            await anext(one)
            waiting = asyncio.ensure_future(_next(one))
            await engine.delete(Delete(DEVICE_READINGS, _key(ONE, 0)))
            await anext(watcher)
            await waiting


async def _next(changes: AsyncGenerator[None, None]) -> None:
    await anext(changes)


def _key(hardware_id: str, number: int) -> dict[str, object]:
    return {"hardware_id": hardware_id, "ts_batch": f"{number:013}#{number}"}


async def _store_reading(engine: SqliteEngine, hardware_id: str, number: int) -> None:
    await engine.put(Put(DEVICE_READINGS, {**_key(hardware_id, number), "batch_id": f"{number}"}))
