"""Generates readings and writes them directly to the store, which is faster than the API."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import islice

from tally.devices.model.records import Number, Reading
from tally.devices.repository.readings import DEVICE_READINGS, _columnar_writes
from tally.kit.ids import new_uuid
from tally.store.api import BatchWrite, Engine
from tests.devices.harness import FIRST_MS, Board

WRITERS = 8


def random_readings(
    board: Board, count: int, step_ms: int, rng: random.Random | None = None
) -> Iterator[Reading]:
    """Generate readings at roughly equal intervals. Some lack a sensor."""
    rng = rng or random.Random(4)
    boot_id = new_uuid()
    for number in range(count):
        sensors: dict[str, Number] = {
            "bme280_temp_c": Decimal(rng.randint(-400, 850)) / 10,
            "rounds": number,
        }
        if rng.random() < 0.1:
            del sensors["bme280_temp_c"]
        yield Reading(
            hardware_id=board.hardware_id,
            batch_id=f"{board.hardware_id}_{boot_id}_{number}",
            timestamp_ms=FIRST_MS + number * step_ms + rng.randrange(step_ms),
            boot_id=boot_id,
            firmware_version="1.0.16",
            sensors=sensors,
            sensor_status={"bme280": "ok" if "bme280_temp_c" in sensors else "error"},
        )


async def write_readings(engine: Engine, readings: Iterable[Reading]) -> None:
    """Write readings to the table."""
    pending = iter(readings)

    async def write_batches() -> None:
        while readings := [*islice(pending, 25)]:
            _, puts = _columnar_writes(readings, {}, 90 * 86_400).puts
            written = await engine.batch_write(BatchWrite(DEVICE_READINGS, tuple(puts.items)))
            assert written.unprocessed is None

    await asyncio.gather(*(write_batches() for _ in range(WRITERS)))
