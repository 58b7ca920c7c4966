"""Builds the roll-ups of readings that are older than the change log, a few days at a time.

A step computes the state of a device's readings at the position of the consumer: it reads the
readings, and undoes what the log has recorded since that position. So boards can send readings
while older ones are built. Hours whose readings may have expired keep the roll-ups they have.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from time import time as store_time
from typing import Final

from tally.devices.model.records import MAX_TIMESTAMP_MS, Number
from tally.devices.model.rollup_changes import aggregate_readings
from tally.devices.model.rollups import (
    DAY_MS,
    HOUR_MS,
    MAX_ROLLUP_SENSORS,
    Rollup,
    SensorRollup,
    merge_maps,
)
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.measurements import (
    STREAM_DELAY_SECONDS,
    Measurement,
    MeasurementChange,
    MeasurementRepository,
)
from tally.devices.repository.rollup_items import TransactionTooLarge
from tally.devices.repository.rollups import (
    ALL_BUILT,
    MAX_WRITES,
    NONE_BUILT,
    ConsumerState,
    RollupKey,
    RollupRepository,
    StoredRollup,
    build_key,
)
from tally.kit.clock import Clock

# A step ends with the first whole day after so many readings.
MAX_STEP_READINGS: Final = 5_000


@dataclass(frozen=True, slots=True)
class RollupBuilder:
    """Builds roll-ups in the order of devices and days; the state says how far it got."""

    rollups: RollupRepository
    measurements: MeasurementRepository
    devices: DeviceRepository
    clock: Clock
    retention_seconds: int
    # The next devices, the first one last.
    listed: list[str] = field(default_factory=list)

    def may_have_expired(self, hour_ms: int) -> bool:
        """Whether readings of this hour may be missing because they have expired."""
        return hour_ms < self.oldest_complete_hour()

    def oldest_complete_hour(self) -> int:
        """Return the start of the first hour of which no reading has expired."""
        oldest = self.clock.milliseconds() - self.retention_seconds * 1000
        return oldest + -oldest % HOUR_MS

    async def build_next(self, state: ConsumerState) -> ConsumerState:
        """Build the next days of the next device; return the new state."""
        device = await self._next_device(state.built_until)
        if device is None:
            following = state._replace(built_until=ALL_BUILT)
            await self.rollups.apply(state, following, {})
            return following
        is_continued = state.built_until.startswith(device)
        first = int(state.built_until.partition("#")[2]) if is_continued else 0
        end = await self._build(state, device, first)
        is_done = end > MAX_TIMESTAMP_MS
        following = state._replace(
            built_until=f"{device}#{ALL_BUILT}" if is_done else build_key(device, end)
        )
        await self.rollups.apply(state, following, {})
        return following

    async def rebuild(self, device: str, state: ConsumerState) -> None:
        """Build all roll-ups of a device, or raise StateChanged if the state moved on."""
        first = 0
        while first <= MAX_TIMESTAMP_MS:
            first = await self._build(state, device, first)

    async def _build(self, state: ConsumerState, device: str, first: int) -> int:
        """Build some days of a device, and return their end."""
        readings, end = await self._read(device, first)
        await self._undo_changes(state.position, device, readings, (first, end))
        await self._store(state, await self._compute(device, readings, (first, end)))
        return end

    async def _store(self, state: ConsumerState, built: Mapping[RollupKey, StoredRollup]) -> None:
        """Store roll-ups, as many in each transaction as fit into it."""
        entries, count = [*built.items()], MAX_WRITES
        while entries:
            try:
                await self.rollups.apply(state, state, dict(entries[:count]))
            except TransactionTooLarge:
                if count == 1:
                    raise
                count //= 2
            else:
                entries = entries[count:]

    async def _next_device(self, built_until: str) -> str | None:
        """Return the first device that is not built completely; list devices again at the end.

        A device that is new at the end of the list has no change before the state's position.
        """
        while self.listed and f"{self.listed[-1]}#{ALL_BUILT}" <= built_until:
            self.listed.pop()
        if not self.listed or built_until == NONE_BUILT:
            ids = [hardware_id async for hardware_id in self.devices.all_ids()]
            self.listed[:] = sorted(
                (found for found in ids if f"{found}#{ALL_BUILT}" > built_until), reverse=True
            )
        return self.listed[-1] if self.listed else None

    async def _read(self, device: str, first: int) -> tuple[dict[str, Measurement], int]:
        """Read whole days of readings, and return their end."""
        readings: dict[str, Measurement] = {}
        day = first
        found = self.measurements.between(device, (first, MAX_TIMESTAMP_MS))
        async with aclosing(found):
            async for ts_batch, measurement in found:
                time = measurement[0]
                if time >= day + DAY_MS:
                    day = time - time % DAY_MS
                    if len(readings) >= MAX_STEP_READINGS:
                        return readings, day
                readings[ts_batch] = measurement
        return readings, MAX_TIMESTAMP_MS + 1

    async def _undo_changes(
        self,
        position: str,
        device: str,
        readings: dict[str, Measurement],
        time_range: tuple[int, int],
    ) -> None:
        """Return to the readings at the position, by the changes that the log has since then."""
        undone: set[str] = set()
        async with aclosing(_changes_so_far(self.measurements, position)) as changes:
            async for change in changes:
                old, new, key = change.old, change.new, change.ts_batch
                time = (old or new or (-1, {}))[0]
                is_inside = time_range[0] <= time < time_range[1]
                if change.hardware_id == device and is_inside and key not in undone:
                    undone.add(key)
                    if old is None:
                        readings.pop(key, None)
                    else:
                        readings[key] = old

    async def _compute(
        self, device: str, readings: dict[str, Measurement], time_range: tuple[int, int]
    ) -> dict[RollupKey, StoredRollup]:
        """Return the roll-ups of all hours and days that have readings or roll-ups."""
        first, end = time_range
        stored = await self.rollups.between(device, "hour", (first, end - 1))
        by_hour: dict[int, list[tuple[int, Mapping[str, Number]]]] = {hour: [] for hour in stored}
        for time, sensors in readings.values():
            by_hour.setdefault(time - time % HOUR_MS, []).append((time, sensors))
        built: dict[RollupKey, StoredRollup] = {}
        days: dict[int, Rollup] = {}
        for hour, found in by_hour.items():
            rollup = aggregate_readings(found)
            if hour in stored and self.may_have_expired(hour):
                rollup = dict(stored[hour].sensors)
            built[device, "hour", hour] = _limited(rollup)
            day = hour - hour % DAY_MS
            days[day] = merge_maps(days.get(day, {}), rollup)
        return built | {(device, "day", day): _limited(rollup) for day, rollup in days.items()}


async def _changes_so_far(
    measurements: MeasurementRepository, position: str
) -> AsyncGenerator[MeasurementChange, None]:
    """Iterate over the changes from a position until now.

    Where the store cannot compare positions, until a change is seconds younger, or none follows.
    """
    until, now = await measurements.position(), store_time()
    is_behind = await measurements.has_changes(position, until)
    if is_behind is False:
        return
    async with aclosing(measurements.changes(position)) as changes:
        while True:
            try:
                async with asyncio.timeout(None if is_behind else STREAM_DELAY_SECONDS):
                    change = await anext(changes)
            except TimeoutError:
                return
            yield change
            if is_behind:
                is_last = not await measurements.has_changes(change.position, until)
            else:
                is_last = change.at >= now + STREAM_DELAY_SECONDS
            if is_last:
                return


def _limited(rollup: Mapping[str, SensorRollup]) -> StoredRollup:
    kept = dict([*rollup.items()][:MAX_ROLLUP_SENSORS])
    return StoredRollup(kept, has_omitted=len(kept) < len(rollup))
