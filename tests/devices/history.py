"""Long histories, written past the API: as many readings as a test wants, in little time."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import islice

from tally.devices.model.records import Number, Reading
from tally.devices.repository.readings import DEVICE_READINGS, _writes
from tally.kit.ids import new_uuid
from tally.store.api import BatchWrite, Engine
from tests.devices.site import FIRST_MS, Board

AT_ONCE = 8


def made_up(
    board: Board, count: int, step_ms: int, chance: random.Random | None = None
) -> Iterator[Reading]:
    """Readings at about equal distances, with values that wander and sensors that are away now and then."""
    chance = chance or random.Random(4)
    boot_id = new_uuid()
    for number in range(count):
        sensors: dict[str, Number] = {
            "bme280_temp_c": Decimal(chance.randint(-400, 850)) / 10,
            "rounds": number,
        }
        if chance.random() < 0.1:
            del sensors["bme280_temp_c"]
        yield Reading(
            hardware_id=board.hardware_id,
            batch_id=f"{board.hardware_id}_{boot_id}_{number}",
            timestamp_ms=FIRST_MS + number * step_ms + chance.randrange(step_ms),
            boot_id=boot_id,
            firmware_version="1.0.16",
            sensors=sensors,
            sensor_status={"bme280": "ok" if "bme280_temp_c" in sensors else "error"},
        )


async def write(engine: Engine, readings: Iterable[Reading]) -> None:
    """Put them all into the table."""
    waiting = iter(readings)

    async def some() -> None:
        while readings := [*islice(waiting, 25)]:
            _, puts = _writes(readings, {}, 90 * 86_400).puts
            written = await engine.batch_write(BatchWrite(DEVICE_READINGS, tuple(puts.items)))
            assert written.unprocessed is None

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
