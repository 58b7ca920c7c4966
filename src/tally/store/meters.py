"""Metrics of each access pattern: calls, errors, items, capacity and latency.

A `Meter` consists of plain numbers that only the event loop's thread changes, so counting is cheap.
`Meters` belong to one store, not to the module: programs and tests in one process do not share
them.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from tally.store.api import Capacity
from tally.store.pattern_operations import UseKey
from tally.store.patterns import AccessPattern

# Bucket upper bounds in seconds, from an embedded read to a repeatedly retried request.
BUCKET_BOUNDS = (
    0.00001,
    0.000025,
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


@dataclass(slots=True)
class Meter:
    """Counters of one pattern, or of one of its operations.

    `rejected` counts results such as a failed condition, which are not errors: a taken lock is one.
    The fields are the columns of the report.
    """

    calls: int = 0
    errors: int = 0
    rejected: int = 0
    items: int = 0
    read: float = 0.0
    write: float = 0.0
    seconds: float = 0.0
    slowest: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_BOUNDS) + 1))

    def record_call(self, seconds: float, calls: int = 1) -> None:
        """Count one call or several concurrent calls, and their duration."""
        self.calls += calls
        self.seconds += seconds * calls
        self.slowest = max(self.slowest, seconds)
        self.buckets[bisect_left(BUCKET_BOUNDS, seconds)] += calls

    def record_result(self, items: int, capacity: Capacity) -> None:
        """Count the items and the capacity of one result."""
        self.items += items
        self.read += capacity.read
        self.write += capacity.write

    def add(self, other: "Meter") -> None:
        """Add the numbers of another meter, to export their sum."""
        self.calls += other.calls
        self.errors += other.errors
        self.rejected += other.rejected
        self.items += other.items
        self.read += other.read
        self.write += other.write
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.buckets = [own + added for own, added in zip(self.buckets, other.buckets, strict=True)]

    def quantile(self, fraction: float) -> float:
        """Estimate a latency quantile from the buckets; 0 before the first call."""
        target = fraction * self.calls
        below = 0
        for position, count in enumerate(self.buckets):
            if count and below + count >= target:
                low = BUCKET_BOUNDS[position - 1] if position else 0.0
                high = (
                    min(BUCKET_BOUNDS[position], self.slowest)
                    if position < len(BUCKET_BOUNDS)
                    else self.slowest
                )
                return low + (high - low) * (target - below) / count
            below += count
        return self.slowest


@dataclass(slots=True)
class PatternMeter:
    """The meters of a pattern: of its calls as a whole, and of each operation."""

    whole: Meter
    operations: dict[UseKey, Meter]

    @property
    def errors(self) -> int:
        """Failed operations and undeclared accesses."""
        return self.whole.errors + sum(meter.errors for meter in self.operations.values())

    @property
    def rejected(self) -> int:
        """Rejected operations."""
        return sum(meter.rejected for meter in self.operations.values())

    @property
    def items(self) -> int:
        """Items found, written or changed."""
        return sum(meter.items for meter in self.operations.values())

    @property
    def capacity(self) -> Capacity:
        """Consumed capacity units."""
        return sum(
            (Capacity(meter.read, meter.write) for meter in self.operations.values()), Capacity()
        )


class Meters:
    """The meters of one program's patterns, created on first use."""

    def __init__(self) -> None:
        self._by_pattern: dict[AccessPattern, PatternMeter] = {}

    def of(self, pattern: AccessPattern) -> PatternMeter:
        """Return the pattern's meter."""
        found = self._by_pattern.get(pattern)
        if found is None:
            found = PatternMeter(Meter(), {key: Meter() for key in pattern.allowed})
            self._by_pattern[pattern] = found
        return found
