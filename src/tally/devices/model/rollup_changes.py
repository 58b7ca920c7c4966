"""What stored, replaced and deleted readings change in the roll-ups of their hours and days."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tally.devices.model.records import Number
from tally.devices.model.rollups import (
    MAX_ROLLUP_SENSORS,
    Rollup,
    SensorRollup,
    TimedValue,
    aggregate,
    merge_maps,
)

SensorValues = dict[str, list[TimedValue]]


@dataclass(slots=True)
class RollupDelta:
    """The values that were added to an interval and removed from it, by sensor."""

    added: SensorValues = field(default_factory=dict)
    removed: SensorValues = field(default_factory=dict)

    def totals(self) -> "DeltaTotals":
        return DeltaTotals(_aggregate_all(self.added), _aggregate_all(self.removed))


@dataclass(frozen=True, slots=True)
class DeltaTotals:
    """The aggregates of added and of removed values."""

    added: Rollup
    removed: Rollup

    def merge(self, other: "DeltaTotals") -> "DeltaTotals":
        return DeltaTotals(
            merge_maps(self.added, other.added), merge_maps(self.removed, other.removed)
        )


@dataclass(frozen=True, slots=True)
class UpdatedRollup:
    """A roll-up after a delta. The extremes of sensors in `stale` must be computed again."""

    sensors: dict[str, SensorRollup]
    has_omitted: bool
    stale: frozenset[str]


def collect_values(values: SensorValues, time: int, sensors: Mapping[str, Number]) -> None:
    """Add the values of a reading to those of its interval."""
    for sensor, value in sensors.items():
        known = values.get(sensor)
        if known is None:
            values[sensor] = [(time, value)]
        else:
            known.append((time, value))


def aggregate_readings(
    readings: Iterable[tuple[int, Mapping[str, Number]]],
) -> dict[str, SensorRollup]:
    """Aggregate all sensors of readings."""
    values: SensorValues = {}
    for time, sensors in readings:
        collect_values(values, time, sensors)
    return _aggregate_all(values)


def update_rollup(sensors: Rollup, delta: DeltaTotals, *, has_omitted: bool) -> UpdatedRollup:
    """Apply a delta; sensors beyond the maximum are omitted."""
    updated, stale = dict(sensors), set[str]()
    for sensor, added in delta.added.items():
        known = updated.get(sensor)
        if known is not None:
            updated[sensor] = known.merge(added)
        elif len(updated) < MAX_ROLLUP_SENSORS:
            updated[sensor] = added
        else:
            has_omitted = True
    for sensor, removed in delta.removed.items():
        known = updated.get(sensor)
        if known is None:  # omitted, or deleted with its device
            continue
        if known.count <= removed.count:
            del updated[sensor]
            continue
        updated[sensor] = known.subtract(removed)
        if known.has_extremes_of(removed):
            stale.add(sensor)
    return UpdatedRollup(updated, has_omitted, frozenset(stale))


def _aggregate_all(values: SensorValues) -> dict[str, SensorRollup]:
    return {sensor: aggregate(found) for sensor, found in values.items()}
