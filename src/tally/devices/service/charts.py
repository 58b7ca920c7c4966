"""Charts: the exact aggregates of a sensor over time, at a bounded cost.

Buckets of an hour or longer are whole hours or days, and come from roll-ups. Shorter buckets come
from readings, if the range has few enough of them. A chart waits until the roll-ups include every
reading that was acknowledged before its request. Where the store cannot tell (DynamoDB), charts
come from readings, and from the roll-ups of hours whose readings may have expired.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

from tally.devices.model.records import Bucket, Number, Series
from tally.devices.model.rollups import (
    DAY_MS,
    HOUR_MS,
    ChartIntervals,
    SensorRollup,
    TimedValue,
    aggregate,
    short_intervals,
    whole_intervals,
)
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.measurements import ChangesLost, MeasurementRepository
from tally.devices.repository.rollups import ConsumerState, Resolution, RollupRepository
from tally.devices.service.history import TimeRange, check_time_range, require_device
from tally.devices.service.rollup_builder import RollupBuilder
from tally.errors import Unavailable
from tally.kit.fair_limiter import FairLimiter
from tally.kit.time_slices import TimeSlices

T = TypeVar("T")
MAX_SHORT_READINGS: Final = 5_000
# More charts at a time would each take longer, and none would end sooner.
MAX_CONCURRENT_CHARTS: Final = 4
MAX_WAIT_SECONDS: Final = 8.0
POLL_SECONDS: Final = 0.01
SLICE_READINGS: Final = 100


class ShortSeries(NamedTuple):
    """A series with short buckets, and how many readings it was computed from."""

    series: Series
    readings: int


@dataclass(frozen=True, slots=True)
class ChartService:
    """Aggregates sensors for charts."""

    measurements: MeasurementRepository
    rollups: RollupRepository
    devices: DeviceRepository
    builder: RollupBuilder
    # Asks the consumer on this instance, if any, not to gather more changes first.
    hurry_rollups: Callable[[], None]
    limiter: FairLimiter = field(default_factory=partial(FairLimiter, MAX_CONCURRENT_CHARTS))
    # The turns of charts on the event loop.
    slices: TimeSlices = field(default_factory=TimeSlices)

    async def series(
        self, hardware_id: str, sensor: str, time_range: TimeRange, points: int, *, owner: str
    ) -> Series:
        """Aggregate a sensor into at most `points` buckets.

        Charts wait for a slot, and waiting owners take turns.
        """
        await require_device(self.devices, hardware_id)
        time_range = check_time_range(time_range)
        async with self.limiter.slot(owner):
            short = short_intervals(time_range, points)
            if short is not None:
                found = await self.short_series(hardware_id, sensor, short)
                if found is not None:
                    return found.series
            return await self.whole_series(hardware_id, sensor, whole_intervals(time_range, points))

    async def short_series(
        self,
        hardware_id: str,
        sensor: str,
        intervals: ChartIntervals,
        max_readings: int = MAX_SHORT_READINGS,
    ) -> ShortSeries | None:
        """Aggregate readings, or return None if there are too many."""
        time_range = intervals.start, intervals.end - 1
        limit = max_readings + 1
        found = self.measurements.of_sensor(hardware_id, sensor, time_range, limit)
        readings = [reading async for reading in self._in_turns(found)]
        if len(readings) == limit:
            return None
        series = _series(sensor, intervals, _aggregate(intervals, _present(readings)))
        return ShortSeries(series, len(readings))

    async def whole_series(
        self, hardware_id: str, sensor: str, intervals: ChartIntervals
    ) -> Series:
        """Aggregate whole hours or days."""
        state = await self._current_state()
        last_day = intervals.end - 1 - (intervals.end - 1) % DAY_MS
        if state is not None and state.is_built(hardware_id, last_day):
            resolution: Resolution = "day" if intervals.has_whole_days else "hour"
            found = await self._rollups_until(
                hardware_id, sensor, resolution, (intervals.start, intervals.end - 1)
            )
            if found is not None:
                return _series(sensor, intervals, found)
        return await self._from_readings(hardware_id, sensor, intervals)

    async def _current_state(self) -> ConsumerState | None:
        """Wait until the roll-ups include all readings so far; None if that cannot be known."""
        state = await self.rollups.state()
        if state is None:
            return None
        until = await self.measurements.position()
        # The time of the consumer, possibly on another instance: no test controls it.
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while is_behind := await self._is_behind(state, until):
            if time.monotonic() > deadline:
                raise Unavailable("The roll-ups of readings are not current yet", retry_after=5)
            self.hurry_rollups()
            await asyncio.sleep(POLL_SECONDS)
            state = await self.rollups.state() or state
        return None if is_behind is None else state

    async def _is_behind(self, state: ConsumerState, until: str) -> bool | None:
        try:
            return await self.measurements.has_changes(state.position, until)
        except ChangesLost:  # until the consumer notices
            return True

    async def _rollups_until(
        self, hardware_id: str, sensor: str, resolution: Resolution, time_range: TimeRange
    ) -> list[tuple[int, SensorRollup]] | None:
        """Read roll-ups by their start, or return None if they do not include all sensors."""
        rollups: list[tuple[int, SensorRollup]] = []
        found = self.rollups.of_sensor(hardware_id, sensor, resolution, time_range)
        async for start, rollup, has_omitted in self._in_turns(found):
            if has_omitted:
                return None
            if rollup is not None:
                rollups.append((start, rollup))
        return rollups

    async def _from_readings(
        self, hardware_id: str, sensor: str, intervals: ChartIntervals
    ) -> Series:
        """Aggregate all readings, and the roll-ups of hours whose readings may have expired."""
        oldest = self.builder.oldest_complete_hour()
        split = min(max(oldest, intervals.start), intervals.end)
        rollups: list[tuple[int, SensorRollup]] = []
        if intervals.start < split:
            old = self.rollups.of_sensor(hardware_id, sensor, "hour", (intervals.start, split - 1))
            rollups = [(start, rollup) async for start, rollup, _ in self._in_turns(old) if rollup]
        known = {start for start, _ in rollups}
        hours: dict[int, list[TimedValue]] = {}
        readings = self.measurements.of_sensor(
            hardware_id, sensor, (intervals.start, intervals.end - 1)
        )
        async for at, value in self._in_turns(readings):
            hour = at - at % HOUR_MS
            if value is not None and hour not in known:
                hours.setdefault(hour, []).append((at, value))
        rollups += [(hour, aggregate(values)) for hour, values in hours.items()]
        return _series(sensor, intervals, rollups)

    async def _in_turns(self, found: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Take turns with other charts while reading, so that requests do not wait long."""
        count = 0
        async with aclosing(found):
            async for element in found:
                yield element
                count += 1
                if count % SLICE_READINGS == 0:
                    await self.slices.wait()


def _present(readings: Iterable[tuple[int, Number | None]]) -> list[TimedValue]:
    return [(at, value) for at, value in readings if value is not None]


def _aggregate(
    intervals: ChartIntervals, values: Iterable[TimedValue]
) -> list[tuple[int, SensorRollup]]:
    """Aggregate values per bucket, by the start of the bucket."""
    buckets: dict[int, list[TimedValue]] = {}
    for entry in values:
        buckets.setdefault(intervals.index(entry[0]), []).append(entry)
    return [(intervals.bounds(index)[0], aggregate(found)) for index, found in buckets.items()]


def _series(
    sensor: str, intervals: ChartIntervals, rollups: Iterable[tuple[int, SensorRollup]]
) -> Series:
    """Merge roll-ups into the buckets in which they start."""
    merged: dict[int, SensorRollup] = {}
    for start, rollup in rollups:
        index = intervals.index(start)
        known = merged.get(index)
        merged[index] = rollup if known is None else known.merge(rollup)
    buckets = [_bucket(intervals, *entry) for entry in sorted(merged.items())]
    return Series(sensor, intervals.width, tuple(buckets))


def _bucket(intervals: ChartIntervals, index: int, rollup: SensorRollup) -> Bucket:
    from_ms, to_ms = intervals.bounds(index)
    return Bucket(
        from_ms,
        to_ms,
        rollup.count,
        rollup.minimum,
        rollup.maximum,
        rollup.mean,
        rollup.first[1],
        rollup.last[1],
    )
