"""The tables `device_readings` and `processed_batches`: each reading once, in the order of time.

The sort key of a reading is `{timestamp_ms:013}#{batch_id}`: thirteen digits sort as numbers do,
and the batch id tells readings of one millisecond apart. A batch id is remembered for thirty days;
both items are written in one transaction.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tally import errors
from tally.devices.model import BATCH_SECONDS, MAX_READINGS, Reading
from tally.store.access import Query, TransactWriteItems, access, to_unavailable
from tally.store.api import BatchPut, ColumnarItems, TransactionBatch
from tally.store.errors import StoreError, StoreUnavailable, TransactionCancelled
from tally.store.expressions import Condition, F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

DEVICE_READINGS = Table(
    "device_readings",
    partition=S("hardware_id"),
    sort=S("ts_batch"),
    ttl="expiration_time",
    attributes=(
        Attribute("hardware_id", "S", required=True, about="MAC address"),
        Attribute("ts_batch", "S", required=True, about="{timestamp_ms:013}#{batch_id}"),
        Attribute("timestamp_ms", "N", required=True, about="epoch milliseconds"),
        Attribute("batch_id", "S", required=True, about="opaque, made by the board"),
        Attribute("boot_id", "S", required=True, about="UUID v4 of the boot"),
        Attribute("firmware_version", "S", required=True),
        Attribute("friendly_name", "S", about="the device's name when the reading arrived"),
        Attribute("sensors", "M", required=True, about="numbers by name"),
        Attribute("sensor_status", "M", required=True, about="ok or error by sensor"),
        Attribute(
            "expiration_time", "N", about="epoch seconds: the reading's time and the retention"
        ),
        Attribute("clock_ahead", "BOOL", about="set where the board's clock was over a day ahead"),
    ),
)

PROCESSED_BATCHES = Table(
    "processed_batches",
    partition=S("batch_id"),
    ttl="expiration_time",
    attributes=(
        Attribute("batch_id", "S", required=True, about="as in device_readings"),
        Attribute("hardware_id", "S", required=True, about="MAC address"),
        Attribute("received_at", "S", required=True, about="RFC 3339, of the first receipt"),
        Attribute(
            "expiration_time",
            "N",
            required=True,
            about="epoch seconds: thirty days after the receipt",
        ),
    ),
)

_NEVER_SEEN = not_exists("batch_id")
# More than a chart or a page needs, and a bound to what one call can cost.
MAX_AT_ONCE = 20_000
MAX_EXPORTED = 50_000_000


@dataclass(frozen=True, slots=True)
class ReadingRepository:
    """Readings by device and time."""

    store: Store
    tables: ClassVar = (DEVICE_READINGS, PROCESSED_BATCHES)

    @access(
        "Store reading once",
        TransactWriteItems,
        table=DEVICE_READINGS,
        tables=(PROCESSED_BATCHES,),
        key="batch_id with attribute_not_exists(batch_id); hardware_id, ts_batch",
        by="user",
        trigger="POST /data",
        frequency="Per reading",
        bound=2 * MAX_READINGS,
    )
    async def store_each(
        self, readings: Sequence[Reading], received_at: str, now: int, retention: int
    ) -> list[bool | errors.Unavailable]:
        """For each reading whether it is new and now stored; False where its batch id was seen before."""
        batch = {"received_at": received_at, "expiration_time": now + BATCH_SECONDS}
        kinds = {(reading.friendly_name, reading.clock_ahead) for reading in readings}
        if (
            len(kinds) == 1
        ):  # nearly always: they are of one device, and its clock is right or wrong
            return await self._store_alike(readings, batch, retention)
        became: dict[int, bool | errors.Unavailable] = {}
        for kind in kinds:
            some = {
                place: each
                for place, each in enumerate(readings)
                if (each.friendly_name, each.clock_ahead) == kind
            }
            became |= zip(
                some, await self._store_alike([*some.values()], batch, retention), strict=True
            )
        return [became[place] for place in range(len(readings))]

    async def _store_alike(
        self, readings: Sequence[Reading], batch: Item, retention: int
    ) -> list[bool | errors.Unavailable]:
        outcomes = await self.store.transact_each(_writes(readings, batch, retention))
        return [outcome is None or _refusal(outcome) for outcome in outcomes]

    @access(
        "Latest reading",
        Query,
        table=DEVICE_READINGS,
        key="hardware_id = :hardware_id, newest first, Limit 1",
        by="user",
        trigger="GET /devices/{hardware_id}/latest",
        frequency="Per request",
    )
    async def latest(self, hardware_id: str) -> Reading | None:
        page = await self.store.query(
            DEVICE_READINGS, F("hardware_id") == hardware_id, forward=False, limit=1
        )
        return _reading(page.items[0]) if page.items else None

    @access(
        "Readings by time range",
        Query,
        table=DEVICE_READINGS,
        key="hardware_id = :hardware_id AND ts_batch BETWEEN :from AND :to",
        by="user",
        trigger="GET /devices/{hardware_id}/readings",
        frequency="Per request",
    )
    async def between(
        self,
        hardware_id: str,
        span: tuple[int, int],
        *,
        forward: bool,
        limit: int,
        start: Key | None,
    ) -> tuple[list[Reading], Key | None]:
        """A page of readings of a span of milliseconds, both ends included, and where the next page starts."""
        page = await self.store.query(
            DEVICE_READINGS, _in_span(hardware_id, span), forward=forward, limit=limit, start=start
        )
        return [_reading(item) for item in page.items], page.next

    @access(
        "One sensor by time range",
        Query,
        table=DEVICE_READINGS,
        key="hardware_id = :hardware_id AND ts_batch BETWEEN :from AND :to, two attributes",
        by="user",
        trigger="GET /devices/{hardware_id}/series",
        frequency="Per chart",
        bound=MAX_AT_ONCE,
    )
    async def values(
        self, hardware_id: str, sensor: str, span: tuple[int, int], most: int
    ) -> tuple[list[tuple[int, Any]], bool]:
        """Times and values of one sensor, at most so many readings of the span, and whether that was all."""
        found: list[tuple[int, Any]] = []
        looked_at = 0
        wanted = (F("timestamp_ms"), F("sensors", sensor))
        start: Key | None = None
        while looked_at < most:
            page = await self.store.query(
                DEVICE_READINGS,
                _in_span(hardware_id, span),
                project=wanted,
                limit=most - looked_at,
                start=start,
            )
            looked_at += page.scanned
            found += [
                (item["timestamp_ms"], item["sensors"][sensor])
                for item in page.items
                if "sensors" in item
            ]
            start = page.next
            if start is None:
                return found, True
        return found, False

    @access(
        "Export readings",
        Query,
        table=DEVICE_READINGS,
        key="hardware_id = :hardware_id AND ts_batch BETWEEN :from AND :to, page by page",
        by="user",
        trigger="GET /devices/{hardware_id}/export",
        frequency="Rare",
        bound=MAX_EXPORTED,
    )
    async def all_between(
        self, hardware_id: str, span: tuple[int, int]
    ) -> AsyncGenerator[Reading, None]:
        """Every reading of the span, in the order of time."""
        async for item in self.store.items(DEVICE_READINGS, _in_span(hardware_id, span), page=500):
            yield _reading(item)


def _writes(readings: Sequence[Reading], batch: Item, retention: int) -> TransactionBatch:
    """Of readings of one kind: all with the same name or none, and all with a clock that is ahead or is not."""
    devices = [reading.hardware_id for reading in readings]
    ids = [reading.batch_id for reading in readings]
    times = [reading.timestamp_ms for reading in readings]
    items = ColumnarItems(
        {
            "hardware_id": devices,
            "ts_batch": [f"{at:013}#{batch_id}" for at, batch_id in zip(times, ids, strict=True)],
            "timestamp_ms": times,
            "batch_id": ids,
            "boot_id": [reading.boot_id for reading in readings],
            "firmware_version": [reading.firmware_version for reading in readings],
            "sensors": [reading.sensors for reading in readings],
            "sensor_status": [reading.sensor_status for reading in readings],
            "expiration_time": [at // 1000 + retention for at in times],
        }
    )
    return TransactionBatch(
        BatchPut(
            PROCESSED_BATCHES,
            ColumnarItems({"batch_id": ids, "hardware_id": devices}),
            batch,
            _NEVER_SEEN,
        ),
        BatchPut(DEVICE_READINGS, items, _sometimes(readings[0])),
    )


def _sometimes(reading: Reading) -> Item:
    """The attributes that not every reading has."""
    item: Item = {} if reading.friendly_name is None else {"friendly_name": reading.friendly_name}
    return {**item, "clock_ahead": True} if reading.clock_ahead else item


def _refusal(refused: StoreError) -> bool | errors.Unavailable:
    """A batch id that was there is a duplicate; whatever else was in the way, the reading may be sent again."""
    if isinstance(refused, TransactionCancelled):
        return (
            False
            if refused.reasons[0].condition_failed
            else to_unavailable(StoreUnavailable(str(refused)))
        )
    if isinstance(refused, StoreUnavailable):
        return to_unavailable(refused)
    raise refused


def _in_span(hardware_id: str, span: tuple[int, int]) -> Condition:
    first, last = span
    return (F("hardware_id") == hardware_id) & F("ts_batch").between(
        f"{first:013}#", f"{last:013}#\uffff"
    )


def _reading(item: Mapping[str, Any]) -> Reading:
    return Reading(
        hardware_id=item["hardware_id"],
        batch_id=item["batch_id"],
        timestamp_ms=item["timestamp_ms"],
        boot_id=item["boot_id"],
        firmware_version=item["firmware_version"],
        sensors=item["sensors"],
        sensor_status=item["sensor_status"],
        friendly_name=item.get("friendly_name"),
        clock_ahead=item.get("clock_ahead", False),
    )
