"""Queries over stored readings: the latest, a time range, a chart series, or an export."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias

from tally.devices.model.records import (
    MAX_TIMESTAMP_MS,
    Bucket,
    Number,
    PageKey,
    Reading,
    Series,
)
from tally.devices.model.validation import check_hardware_id
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.readings import MAX_SERIES_READINGS, ReadingRepository
from tally.errors import Invalid, NotFound
from tally.kit.fair_limiter import FairLimiter
from tally.kit.time_slices import TimeSlices

TimeRange: TypeAlias = tuple[int, int]
# Ranges with fewer readings are charted from all of them; denser ranges are sampled.
MAX_UNSAMPLED_READINGS: Final = 5_000
MAX_CONCURRENT_QUERIES: Final = 16
# More charts or exports at a time would each take longer, and none would end sooner.
MAX_CONCURRENT_CHARTS: Final = 4
MAX_CONCURRENT_EXPORTS: Final = 2


@dataclass(frozen=True, slots=True)
class ReadingHistory:
    """Reads what devices have measured."""

    readings: ReadingRepository
    devices: DeviceRepository
    chart_limiter: FairLimiter = field(default_factory=partial(FairLimiter, MAX_CONCURRENT_CHARTS))
    # An export holds a slot while it reads and encodes a chunk, not while it waits for its client.
    export_limiter: FairLimiter = field(
        default_factory=partial(FairLimiter, MAX_CONCURRENT_EXPORTS)
    )
    # The turns of charts and exports on the event loop.
    slices: TimeSlices = field(default_factory=TimeSlices)

    async def latest(self, hardware_id: str) -> Reading:
        await self._require_device(hardware_id)
        reading = await self.readings.latest(hardware_id)
        if reading is None:
            raise NotFound(f"Device {hardware_id} has no readings", code="no_readings")
        return reading

    async def find_latest(self, hardware_id: str) -> Reading | None:
        """Return the latest reading of a device, or None if it has none."""
        return await self.readings.latest(hardware_id)

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

    async def series(
        self, hardware_id: str, sensor: str, time_range: TimeRange, points: int, *, owner: str
    ) -> Series:
        """Aggregate a sensor into at most `points` buckets.

        The cost is bounded, however many readings the range contains. Charts wait for a slot, and
        waiting owners take turns.
        """
        await self._require_device(hardware_id)
        time_range = check_time_range(time_range)
        async with self.chart_limiter.slot(owner):
            return await self._aggregate(hardware_id, sensor, time_range, points)

    async def _aggregate(
        self, hardware_id: str, sensor: str, time_range: TimeRange, points: int
    ) -> Series:
        values, is_complete = await self.readings.values(
            hardware_id, sensor, time_range, MAX_UNSAMPLED_READINGS
        )
        if is_complete:
            return Series(sensor, tuple(_buckets(values, time_range, points)), sampled=False)
        return await self._sample(hardware_id, sensor, time_range, points)

    async def _sample(
        self, hardware_id: str, sensor: str, time_range: TimeRange, points: int
    ) -> Series:
        """Aggregate the first readings of each bucket, which may be all of them."""
        buckets: list[Bucket] = []
        is_sampled, per_bucket = False, MAX_SERIES_READINGS // points
        intervals = list(_intervals(time_range, points))
        for start in range(0, len(intervals), MAX_CONCURRENT_QUERIES):
            batch = intervals[start : start + MAX_CONCURRENT_QUERIES]
            found = await asyncio.gather(
                *(self._values(hardware_id, sensor, interval, per_bucket) for interval in batch)
            )
            for interval, (values, is_complete) in zip(batch, found, strict=True):
                buckets += _bucket(interval, [value for _, value in values])
                is_sampled = is_sampled or not is_complete
        return Series(sensor, tuple(buckets), sampled=is_sampled)

    async def _values(
        self, hardware_id: str, sensor: str, time_range: TimeRange, limit: int
    ) -> tuple[list[tuple[int, Number]], bool]:
        """Read a bucket in a turn of its own: the embedded store reads few rows at once."""
        await self.slices.wait()
        return await self.readings.values(hardware_id, sensor, time_range, limit)

    async def export(
        self, hardware_id: str, time_range: TimeRange
    ) -> AsyncGenerator[Reading, None]:
        """Stream all readings in a time range. Validation errors are raised before the first."""
        await self._require_device(hardware_id)
        return self.readings.all_between(hardware_id, check_time_range(time_range))

    async def _require_device(self, hardware_id: str) -> None:
        if await self.devices.get(check_hardware_id(hardware_id)) is None:
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


def _intervals(time_range: TimeRange, points: int) -> Iterator[TimeRange]:
    first, last = time_range
    width = -(-(last - first + 1) // points)
    for begin in range(first, last + 1, width):
        yield begin, min(begin + width - 1, last)


def _buckets(
    values: Sequence[tuple[int, Number]], time_range: TimeRange, points: int
) -> Iterator[Bucket]:
    """Group values, sorted by time, into intervals of equal length. Omits empty intervals."""
    position = 0
    for interval in _intervals(time_range, points):
        inside: list[Number] = []
        while position < len(values) and values[position][0] <= interval[1]:
            inside.append(values[position][1])
            position += 1
        yield from _bucket(interval, inside)


def _bucket(interval: TimeRange, values: Sequence[Number]) -> Iterator[Bucket]:
    """Aggregate the values of an interval, unless it is empty."""
    if values:
        mean = sum(map(Decimal, values), Decimal()) / len(values)
        yield Bucket(*interval, len(values), min(values), max(values), mean)
