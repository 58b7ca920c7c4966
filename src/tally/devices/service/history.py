"""Queries over stored readings: the latest, a time range, or an export."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from tally.devices.model.records import DAY_MS, MAX_TIMESTAMP_MS, PageKey, Reading
from tally.devices.model.validation import check_hardware_id
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.readings import ReadingRepository
from tally.errors import Invalid, NotFound
from tally.kit.clock import Clock
from tally.kit.fair_limiter import FairLimiter
from tally.kit.time_slices import TimeSlices

TimeRange: TypeAlias = tuple[int, int]
MAX_CONCURRENT_EXPORTS: Final = 2
SLICE_READINGS: Final = 100


@dataclass(frozen=True, slots=True)
class ReadingHistory:
    """Reads what devices have measured."""

    readings: ReadingRepository
    devices: DeviceRepository
    clock: Clock
    # An export holds a slot while it reads and encodes a chunk, not while it waits for its client.
    export_limiter: FairLimiter = field(
        default_factory=partial(FairLimiter, MAX_CONCURRENT_EXPORTS)
    )
    # The turns of exports on the event loop.
    slices: TimeSlices = field(default_factory=TimeSlices)

    async def latest(self, hardware_id: str) -> Reading:
        await self._require_device(hardware_id)
        reading = await self.find_latest(hardware_id)
        if reading is None:
            raise NotFound(f"Device {hardware_id} has no readings", code="no_readings")
        return reading

    async def find_latest(self, hardware_id: str) -> Reading | None:
        """Return the latest reading of a device, or None if it has none.

        Readings of a clock that was ahead do not count.
        """
        until = self.clock.milliseconds() + DAY_MS
        reading = await self.readings.latest(hardware_id, until)
        if reading is None or not reading.clock_ahead:
            return reading
        return await self._find_trusted(hardware_id, reading.timestamp_ms)

    async def _find_trusted(self, hardware_id: str, until: int) -> Reading | None:
        count = 0
        async with aclosing(self.readings.newest(hardware_id, until)) as readings:
            async for reading in readings:
                if not reading.clock_ahead:
                    return reading
                count += 1
                if count % SLICE_READINGS == 0:
                    await self.slices.wait()
        return None

    async def between(
        self,
        hardware_id: str,
        time_range: TimeRange,
        *,
        forward: bool,
        limit: int,
        start: PageKey | None,
    ) -> tuple[list[Reading], PageKey | None]:
        """Return a page of readings in a time range, and the start key of the next page."""
        await self._require_device(hardware_id)
        return await self.readings.between(
            hardware_id, check_time_range(time_range), forward=forward, limit=limit, start=start
        )

    async def export(
        self, hardware_id: str, time_range: TimeRange
    ) -> AsyncGenerator[Reading, None]:
        """Stream all readings in a time range. Validation errors are raised before the first."""
        await self._require_device(hardware_id)
        return self.readings.all_between(hardware_id, check_time_range(time_range))

    async def _require_device(self, hardware_id: str) -> None:
        await require_device(self.devices, hardware_id)


async def require_device(devices: DeviceRepository, hardware_id: str) -> None:
    """Raise NotFound if the device is unknown."""
    if await devices.get(check_hardware_id(hardware_id)) is None:
        raise NotFound(f"Device {hardware_id} does not exist", code="device_not_found")


def check_time_range(time_range: TimeRange) -> TimeRange:
    """Require an inclusive range of milliseconds, and clip it to valid timestamps."""
    first, last = time_range
    if not 0 <= first <= last:
        raise Invalid(
            "from must not be later than to, both in milliseconds since 1970",
            code="invalid_field",
            field="from",
        )
    return min(first, MAX_TIMESTAMP_MS), min(last, MAX_TIMESTAMP_MS)
