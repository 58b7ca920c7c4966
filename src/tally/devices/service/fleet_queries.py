"""Queries over many boards: latest readings, aligned series and exports, each with a bound."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from tally.devices.model.fleet import check_group
from tally.devices.model.fleet_series import AlignedSeries, LatestReading, align
from tally.devices.model.records import Device, PageKey, Reading, Series
from tally.devices.model.rollups import ChartIntervals, short_intervals, whole_intervals
from tally.devices.repository.groups import GroupRepository
from tally.devices.service.charts import MAX_SHORT_READINGS, ChartService
from tally.devices.service.devices import FleetService
from tally.devices.service.groups import GroupService
from tally.devices.service.history import ReadingHistory, TimeRange, check_time_range
from tally.errors import Invalid, NotFound
from tally.kit.fair_limiter import FairLimiter
from tally.kit.time_slices import TimeSlices

MAX_SERIES_BOARDS: Final = 100
MAX_SERIES_POINTS: Final = 20_000
MAX_SERIES_READINGS: Final = 50_000
MAX_EXPORTED_BOARDS: Final = 10_000
MAX_METRIC_BOARDS: Final = 1_000
_CONCURRENT_READS: Final = 8


class FleetSnapshot(NamedTuple):
    """The latest readings of the most recently active boards."""

    latest: Sequence[LatestReading]
    is_complete: bool


@dataclass(frozen=True, slots=True)
class FleetQueries:
    """Reads several boards in one request. Long reads take turns with other requests."""

    devices: FleetService
    groups: GroupService
    members: GroupRepository
    history: ReadingHistory
    charts: ChartService
    # Snapshots read a thousand boards; others wait.
    limiter: FairLimiter = field(default_factory=partial(FairLimiter, 2))
    slices: TimeSlices = field(default_factory=TimeSlices)

    async def latest(
        self, group: str | None, limit: int, start: PageKey | None
    ) -> tuple[list[LatestReading], PageKey | None]:
        """Return a page of devices with their latest readings."""
        if group is None:
            found, next_key = await self.devices.by_activity(limit, start)
        else:
            found, next_key = await self.groups.page(group, limit, start)
        return await self._latest_of(found), next_key

    async def snapshot(self, group: str | None, *, owner: str) -> FleetSnapshot:
        """Return the latest readings of up to `MAX_METRIC_BOARDS` devices."""
        async with self.limiter.slot(owner):
            latest, next_key = await self.latest(group, MAX_METRIC_BOARDS, None)
        return FleetSnapshot(latest, next_key is None)

    async def _latest_of(self, devices: Sequence[Device]) -> list[LatestReading]:
        found: list[LatestReading] = []
        for start in range(0, len(devices), _CONCURRENT_READS):
            await self.slices.wait()
            some = devices[start : start + _CONCURRENT_READS]
            readings = await asyncio.gather(
                *(self.history.find_latest(device.hardware_id) for device in some)
            )
            found += map(LatestReading, some, readings)
        return found

    async def series(
        self, group: str, sensor: str, time_range: TimeRange, points: int, *, owner: str
    ) -> AlignedSeries:
        """Aggregate a sensor of all boards of a group into the same intervals."""
        devices = await self._few_members(group)
        time_range = check_time_range(time_range)
        if len(devices) * points > MAX_SERIES_POINTS:
            most = MAX_SERIES_POINTS // len(devices)
            raise Invalid(
                f"points must be at most {most} for the {len(devices)} devices of this group",
                code="invalid_field",
                field="points",
            )
        async with self.charts.limiter.slot(owner):
            short = short_intervals(time_range, points)
            if short is not None:
                found = await self._short_series(devices, sensor, short)
                if found is not None:
                    return align(sensor, found, short.width)
            whole = whole_intervals(time_range, points)
            found = [
                (device, await self.charts.whole_series(device.hardware_id, sensor, whole))
                for device in devices
            ]
            return align(sensor, found, whole.width)

    async def _short_series(
        self, devices: Iterable[Device], sensor: str, intervals: ChartIntervals
    ) -> list[tuple[Device, Series]] | None:
        """Aggregate readings, or return None if the group has too many."""
        found: list[tuple[Device, Series]] = []
        remaining = MAX_SERIES_READINGS
        for device in devices:
            short = await self.charts.short_series(
                device.hardware_id, sensor, intervals, min(MAX_SHORT_READINGS, remaining)
            )
            if short is None:
                return None
            remaining -= short.readings
            found.append((device, short.series))
        return found

    async def _few_members(self, group: str) -> list[Device]:
        ids = [
            hardware_id
            async for hardware_id in self.members.members(check_group(group), MAX_SERIES_BOARDS + 1)
        ]
        if not ids:
            raise _no_group(group)
        if len(ids) > MAX_SERIES_BOARDS:
            raise Invalid(
                f"group must have at most {MAX_SERIES_BOARDS} devices for one series",
                code="invalid_field",
                field="group",
            )
        found = await self.members.get_many(ids)
        return [found[hardware_id] for hardware_id in ids if hardware_id in found]

    async def export(self, group: str, time_range: TimeRange) -> AsyncGenerator[Reading, None]:
        """Stream all readings of a group, board by board, each sorted by time."""
        time_range = check_time_range(time_range)
        members = self.members.members(check_group(group), MAX_EXPORTED_BOARDS + 1)
        ids = [hardware_id async for hardware_id in members]
        if not ids:
            raise _no_group(group)
        if len(ids) > MAX_EXPORTED_BOARDS:
            raise Invalid(
                f"group must have at most {MAX_EXPORTED_BOARDS} devices for an export",
                code="invalid_field",
                field="group",
            )
        return self._readings_of(ids, time_range)

    async def _readings_of(
        self, hardware_ids: Iterable[str], time_range: TimeRange
    ) -> AsyncGenerator[Reading, None]:
        for hardware_id in hardware_ids:
            found = self.history.readings.all_between(hardware_id, time_range)
            async with aclosing(found) as readings:
                async for reading in readings:
                    yield reading


def _no_group(group: str) -> NotFound:
    return NotFound(f"Group {group} has no devices", code="group_not_found")
