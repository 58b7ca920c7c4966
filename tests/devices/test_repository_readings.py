"""The access patterns of the tables `device_readings` and `processed_batches`."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from tally.devices.model.digests import content_digest
from tally.devices.model.records import DAY_MS, Number, Reading, StoredBatch
from tally.devices.repository.measurements import MeasurementRepository
from tally.devices.repository.readings import DEVICE_READINGS, PROCESSED_BATCHES, ReadingRepository
from tally.errors import Unavailable
from tally.kit.ids import new_uuid
from tally.store.api import Get, Transaction, TransactionResult
from tally.store.errors import Reason, StoreError, TransactionCancelled
from tally.store.store import Store
from tests.devices.fakes import InterceptingEngine
from tests.devices.harness import START_MS, new_hardware_id

NOW = START_MS // 1000
RECEIVED = "2080-01-01T00:00:00Z"
RETENTION = 90 * 86_400


@pytest.fixture
def readings(store: Store) -> ReadingRepository:
    return ReadingRepository(store)


def reading(hardware_id: str, at: int = 0, **changes: Any) -> Reading:
    base = Reading(
        hardware_id=hardware_id,
        batch_id=f"{hardware_id}_{new_uuid()}",
        timestamp_ms=START_MS + at,
        boot_id=new_uuid(),
        firmware_version="1.0.16",
        sensors={"bme280_temp_c": Decimal("22.5"), "rounds": 12},
        sensor_status={"bme280": "ok"},
    )
    return replace(base, **changes)


def batch(made: Reading) -> StoredBatch:
    """What is stored under the batch id of a reading."""
    digest = content_digest(made.timestamp_ms, made.sensors, made.sensor_status)
    return StoredBatch(made.hardware_id, digest)


async def store_all(
    readings: ReadingRepository, *to_store: Reading
) -> list[StoredBatch | Unavailable | None]:
    return await readings.store_each(to_store, RECEIVED, NOW, RETENTION)


async def latest(readings: ReadingRepository, hardware_id: str) -> Reading | None:
    return await readings.latest(hardware_id, START_MS + DAY_MS)


async def test_a_reading_and_its_batch_id_are_stored_together(readings: ReadingRepository) -> None:
    """With the keys, formats and TTLs of the seed."""
    made = reading(new_hardware_id(), friendly_name="greenhouse", clock_ahead=True)
    assert await store_all(readings, made) == [None]
    key = {"hardware_id": made.hardware_id, "ts_batch": f"{made.timestamp_ms:013}#{made.batch_id}"}
    found = await readings.store._engine.get(Get(DEVICE_READINGS, key, consistent=True))
    assert found.item is not None
    assert set(found.item) == {attribute.name for attribute in DEVICE_READINGS.attributes}
    assert found.item["expiration_time"] == made.timestamp_ms // 1000 + RETENTION
    stored = await readings.store._engine.get(
        Get(PROCESSED_BATCHES, {"batch_id": made.batch_id}, consistent=True)
    )
    assert stored.item == {
        "batch_id": made.batch_id,
        "hardware_id": made.hardware_id,
        "received_at": RECEIVED,
        "content_digest": batch(made).content_digest,
        "expiration_time": NOW + 30 * 86_400,
    }
    assert await latest(readings, made.hardware_id) == made


async def test_a_duplicate_batch_id_keeps_the_first_reading(
    readings: ReadingRepository,
) -> None:
    first = reading(new_hardware_id())
    again = replace(first, timestamp_ms=first.timestamp_ms + 1, sensors={"bme280_temp_c": 99})
    assert await store_all(readings, first) == [None]
    assert await store_all(readings, first, again) == [batch(first), batch(first)]
    found, _ = await readings.between(
        first.hardware_id, (0, 2 * START_MS), forward=True, limit=10, start=None
    )
    assert found == [first]


async def test_of_concurrent_writes_with_one_batch_id_one_succeeds(
    readings: ReadingRepository,
) -> None:
    made = reading(new_hardware_id())
    calls = await asyncio.gather(*(store_all(readings, made, made) for _ in range(4)))
    assert Counter(outcome for outcomes in calls for outcome in outcomes) == {
        None: 1,
        batch(made): 7,
    }
    assert await latest(readings, made.hardware_id) == made


@pytest.mark.parametrize(
    "codes",
    [
        ("TransactionConflict", "None"),
        ("None", "ConditionalCheckFailed"),
        ("None", "ThrottlingError"),
    ],
)
async def test_only_a_failed_batch_condition_is_a_duplicate(
    store: Store, codes: tuple[str, str]
) -> None:
    """Any other cancellation is a retryable error."""

    async def cancel(transactions: Sequence[Transaction]) -> list[TransactionResult | StoreError]:
        return [TransactionCancelled([Reason(code) for code in codes]) for _ in transactions]

    readings = ReadingRepository(Store(InterceptingEngine(store._engine, cancel)))
    (outcome,) = await store_all(readings, reading(new_hardware_id()))
    assert isinstance(outcome, Unavailable)
    assert not any(code in outcome.message for code in codes), "details belong in the log"


async def test_the_latest_reading_has_the_latest_timestamp(readings: ReadingRepository) -> None:
    hardware_id = new_hardware_id()
    made = [reading(hardware_id, offset) for offset in (5, 9, 1)]
    await store_all(readings, *made, reading(new_hardware_id(), 99))
    assert await latest(readings, hardware_id) == made[1]
    assert await latest(readings, new_hardware_id()) is None


async def test_a_range_is_inclusive_and_contains_every_batch_of_a_millisecond(
    readings: ReadingRepository,
) -> None:
    hardware_id = new_hardware_id()
    batches = ("0", "zz", "_", "A:B.C-d")
    inside = [reading(hardware_id, 10, batch_id=f"{hardware_id}{end}") for end in batches]
    inside += [reading(hardware_id, 20, batch_id=f"z{end}{hardware_id}") for end in batches]
    outside = [reading(hardware_id, offset) for offset in (9, 21)]
    await store_all(readings, *inside, *outside)
    found, start = await readings.between(
        hardware_id, (START_MS + 10, START_MS + 20), forward=True, limit=100, start=None
    )
    assert sorted(item.batch_id for item in found) == sorted(item.batch_id for item in inside)
    assert [item.timestamp_ms for item in found] == sorted(item.timestamp_ms for item in found)
    assert start is None


@pytest.mark.parametrize("forward", [True, False])
async def test_a_range_is_paged_in_both_directions(
    readings: ReadingRepository, forward: bool
) -> None:
    hardware_id = new_hardware_id()
    made = [reading(hardware_id, offset) for offset in range(7)]
    await store_all(readings, *made)
    found: list[Reading] = []
    start = None
    while True:
        page, start = await readings.between(
            hardware_id, (0, 2 * START_MS), forward=forward, limit=3, start=start
        )
        found += page
        if start is None:
            break
    assert found == (made if forward else made[::-1])


async def test_timestamps_of_any_length_sort_as_numbers(readings: ReadingRepository) -> None:
    """A timestamp of 2001 has twelve digits; the sort key pads to thirteen."""
    hardware_id = new_hardware_id()
    made = [
        reading(hardware_id, timestamp_ms=time)
        for time in (978_307_200_000, 1_000_000_000_000, 4_102_444_799_999)
    ]
    await store_all(readings, *made[::-1])
    found, _ = await readings.between(
        hardware_id, (0, 4_102_444_800_000), forward=True, limit=10, start=None
    )
    assert found == made


async def test_sensor_values_are_sorted_and_limited(
    readings: ReadingRepository, store: Store
) -> None:
    hardware_id = new_hardware_id()
    names: list[dict[str, Number]] = [
        {"a.b": 1},
        {"other": 7},
        {"a.b": Decimal("2.5"), "other": 8},
        {"a.b": 3},
    ]
    await store_all(
        readings, *(reading(hardware_id, at, sensors=sensors) for at, sensors in enumerate(names))
    )
    time_range = (START_MS, START_MS + DAY_MS)
    everything = [*zip(range(START_MS, START_MS + 4), (1, None, Decimal("2.5"), 3), strict=True)]
    measurements = MeasurementRepository(store)

    async def values(sensor: str, limit: int | None) -> list[tuple[int, Number | None]]:
        found = measurements.of_sensor(hardware_id, sensor, time_range, limit)
        return [value async for value in found]

    assert await values("a.b", None) == everything
    assert await values("a.b", 3) == everything[:3]
    assert await values("none", 100) == [(START_MS + at, None) for at in range(4)]


async def test_a_range_is_streamed_in_order(readings: ReadingRepository) -> None:
    hardware_id = new_hardware_id()
    made = [reading(hardware_id, offset) for offset in range(12)]
    await store_all(readings, *made)
    assert [
        item async for item in readings.all_between(hardware_id, (START_MS + 1, START_MS + 10))
    ] == made[1:11]
