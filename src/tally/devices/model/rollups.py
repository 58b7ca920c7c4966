"""Roll-ups: the exact aggregates of a sensor in an hour or a day, and the intervals of charts.

Sums are exact, so that aggregates of parts can be merged and deleted values subtracted. The mean is
the exact sum divided by the count, rounded once to 38 significant digits. Of several values at the
same millisecond, the first is the lowest and the last is the highest.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact
from typing import Final, TypeAlias

import msgspec

from tally.devices.model.records import Number

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
# Sensors of a device in one roll-up; the charts of others read raw readings.
MAX_ROLLUP_SENSORS: Final = 128
# Numbers have digits between 1E-157 and 1E+121, and there are fewer than 1E+30 of them.
_EXACT: Final = Context(prec=320, rounding=ROUND_HALF_EVEN, traps=[Inexact])
_MEAN: Final = Context(prec=38, rounding=ROUND_HALF_EVEN)
# Widths below a day divide it, so that the buckets of every day start at the same hours.
_HOUR_WIDTHS: Final = tuple(hours * HOUR_MS for hours in (1, 2, 3, 4, 6, 8, 12))

TimedValue: TypeAlias = tuple[int, Number]


class SensorRollup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The values of a sensor in an interval: `first` and `last` with their times."""

    count: int
    total: Decimal
    minimum: Number
    maximum: Number
    first: TimedValue
    last: TimedValue

    @property
    def mean(self) -> Decimal:
        return _MEAN.divide(self.total, Decimal(self.count))

    def merge(self, other: "SensorRollup") -> "SensorRollup":
        return SensorRollup(
            self.count + other.count,
            _EXACT.add(self.total, other.total),
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            min(self.first, other.first),
            max(self.last, other.last),
        )

    def subtract(self, removed: "SensorRollup") -> "SensorRollup":
        """Remove values. Extremes stay, even if they were removed; see `has_extremes_of`."""
        return msgspec.structs.replace(
            self,
            count=self.count - removed.count,
            total=_EXACT.subtract(self.total, removed.total),
        )

    def has_extremes_of(self, removed: "SensorRollup") -> bool:
        """Whether the removed values may include an extreme of this roll-up."""
        return (
            removed.minimum <= self.minimum
            or removed.maximum >= self.maximum
            or removed.first <= self.first
            or removed.last >= self.last
        )


Rollup: TypeAlias = Mapping[str, SensorRollup]


def aggregate(values: Sequence[TimedValue]) -> SensorRollup:
    """Aggregate values, of which there is at least one, in any order."""
    if len(values) == 1:  # of a reading that arrived alone
        [only] = values
        number = only[1]
        return SensorRollup(1, Decimal(number), number, number, only, only)
    numbers = [value for _, value in values]
    total = Decimal()
    for number in numbers:
        total = _EXACT.add(total, Decimal(number))
    return SensorRollup(len(values), total, min(numbers), max(numbers), min(values), max(values))


def merge_maps(first: Rollup, second: Rollup) -> dict[str, SensorRollup]:
    """Merge the roll-ups of several sensors."""
    merged = dict(first)
    for sensor, rollup in second.items():
        known = merged.get(sensor)
        merged[sensor] = rollup if known is None else known.merge(rollup)
    return merged


class ChartIntervals(msgspec.Struct, frozen=True):
    """The buckets of a chart: from `start`, each `width` long, until `end` (exclusive)."""

    start: int
    width: int
    end: int

    def index(self, time: int) -> int:
        return (time - self.start) // self.width

    def bounds(self, index: int) -> tuple[int, int]:
        """Return the first and the last millisecond of a bucket."""
        first = self.start + index * self.width
        return first, min(first + self.width, self.end) - 1

    @property
    def has_whole_hours(self) -> bool:
        return self.width % HOUR_MS == 0 and self.start % HOUR_MS == 0

    @property
    def has_whole_days(self) -> bool:
        return self.width % DAY_MS == 0 and self.start % DAY_MS == 0


def short_intervals(time_range: tuple[int, int], points: int) -> ChartIntervals | None:
    """Divide a range into buckets of equal length, or return None if they are not short."""
    first, last = time_range
    width = -(-(last - first + 1) // points)
    return None if width >= HOUR_MS else ChartIntervals(first, width, last + 1)


def whole_intervals(time_range: tuple[int, int], points: int) -> ChartIntervals:
    """Cover a range with at most `points` buckets of whole hours or whole days, in UTC."""
    for width in _widths(time_range, points):
        start, end = _cover(time_range, min(width, DAY_MS))
        if -(-(end - start) // width) <= points:
            return ChartIntervals(start, width, end)
    raise AssertionError("the last width covers the range with one bucket")


def _widths(time_range: tuple[int, int], points: int) -> Iterator[int]:
    yield from _HOUR_WIDTHS
    start, end = _cover(time_range, DAY_MS)
    yield -(-((end - start) // DAY_MS) // points) * DAY_MS


def _cover(time_range: tuple[int, int], unit: int) -> tuple[int, int]:
    first, last = time_range
    return first - first % unit, last - last % unit + unit
