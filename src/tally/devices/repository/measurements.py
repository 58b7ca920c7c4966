"""The values of `device_readings` for charts and roll-ups, and their changes."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from tally.devices.model.records import Number
from tally.devices.repository.readings import (
    DEVICE_READINGS,
    MAX_EXPORTED_READINGS,
    READING_RANGE,
    reading_range,
)
from tally.store.access import GetRecords, Query, access, param
from tally.store.errors import PositionExpired, PositionUnknown
from tally.store.expressions import F
from tally.store.store import Store
from tally.store.values import Item

# A stream of DynamoDB has a change within this time, in all shards. Its times are whole seconds.
STREAM_DELAY_SECONDS: Final = 3.0
Measurement: TypeAlias = tuple[int, dict[str, Number]]


class MeasurementChange(NamedTuple):
    """A reading that was stored, replaced or deleted, with its values before and after.

    Expired readings have neither, because roll-ups keep them.
    """

    position: str
    at: float
    hardware_id: str
    ts_batch: str
    old: Measurement | None
    new: Measurement | None


class ChangesLost(Exception):
    """Changes after a position are no longer in the log."""


@dataclass(frozen=True, slots=True)
class MeasurementRepository:
    """Timestamps and sensor values by device and time."""

    store: Store
    tables: ClassVar = ()
    reads: ClassVar = (DEVICE_READINGS,)

    @access(
        "One sensor by time range",
        Query(where=READING_RANGE, project=(F("timestamp_ms"), F("sensors", f"{param('sensor')}"))),
        table=DEVICE_READINGS,
        by="user",
        trigger="GET /devices/{hardware_id}/series",
        frequency="Per chart with short intervals",
        bound=MAX_EXPORTED_READINGS,
    )
    async def of_sensor(
        self, hardware_id: str, sensor: str, time_range: tuple[int, int], limit: int | None = None
    ) -> AsyncGenerator[tuple[int, Number | None], None]:
        """Iterate over at most `limit` readings: their times, and the sensor's value if any."""
        async for item in self.store.items(
            DEVICE_READINGS,
            reading_range(hardware_id, time_range),
            project=(F("timestamp_ms"), F("sensors", sensor)),
            page=500,
            consistent=True,
            bound=limit,
            overflow="raise" if limit is None else "stop",
        ):
            yield item["timestamp_ms"], item["sensors"][sensor] if "sensors" in item else None

    @access(
        "All sensors by time range",
        Query(where=READING_RANGE, project=("ts_batch", "timestamp_ms", "sensors")),
        table=DEVICE_READINGS,
        trigger="Stream consumers",
        frequency="While roll-ups of older readings are built, and per deleted extreme",
        bound=MAX_EXPORTED_READINGS,
    )
    async def between(
        self, hardware_id: str, time_range: tuple[int, int]
    ) -> AsyncGenerator[tuple[str, Measurement], None]:
        """Iterate over all readings of a device by `ts_batch`."""
        async for item in self.store.items(
            DEVICE_READINGS,
            reading_range(hardware_id, time_range),
            project=("ts_batch", "timestamp_ms", "sensors"),
            page=500,
            consistent=True,
        ):
            yield item["ts_batch"], _measurement(item)

    @access(
        "Changes of readings",
        GetRecords(),
        table=DEVICE_READINGS,
        trigger="Stream consumers",
        frequency="Continuously, on one instance",
    )
    async def changes(self, after: str) -> AsyncGenerator[MeasurementChange, None]:
        """Follow the changes after a position; raise ChangesLost if some were trimmed."""
        try:
            async for change in self.store.changes(DEVICE_READINGS, after=after):
                is_kept = change.is_expiry
                yield MeasurementChange(
                    change.position,
                    change.at,
                    change.key["hardware_id"],
                    change.key["ts_batch"],
                    None if is_kept or change.old is None else _measurement(change.old),
                    None if change.new is None else _measurement(change.new),
                )
        except (PositionExpired, PositionUnknown) as error:
            raise ChangesLost(str(error)) from error

    @access(
        "Position of the changes of readings",
        GetRecords(),
        table=DEVICE_READINGS,
        by="both",
        trigger="GET /devices/{hardware_id}/series, stream consumers",
        frequency="Per chart",
    )
    async def position(self) -> str:
        """Return the position after the last change so far."""
        return await self.store.stream_position(DEVICE_READINGS)

    @access(
        "Unread changes of readings",
        GetRecords(),
        table=DEVICE_READINGS,
        by="both",
        trigger="GET /devices/{hardware_id}/series, stream consumers",
        frequency="Per chart",
    )
    async def has_changes(self, after: str, until: str) -> bool | None:
        try:
            return await self.store.has_changes(DEVICE_READINGS, after=after, until=until)
        except (PositionExpired, PositionUnknown) as error:
            raise ChangesLost(str(error)) from error


def _measurement(item: Item) -> Measurement:
    sensors: dict[str, Any] = item["sensors"]
    return item["timestamp_ms"], sensors
