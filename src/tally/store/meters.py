"""What each access pattern costs: calls, errors, items, capacity and latency, counted as it runs.

A `Meter` is plain numbers, changed by the event loop's one thread, so counting costs next to
nothing. `Meters` belong to the store of one program, not to the module: two programs in one
process, or two tests, never see each other's figures.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from tally.store.api import Capacity
from tally.store.patterns import AccessPattern, UseKey

# Upper edges in seconds: from an embedded read to a request that was retried for a while.
EDGES = (
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
    """Figures of one pattern, or of one operation within it.

    `refused` counts answers such as a failed condition, which are no errors: that is how a lock
    says that it is taken.
    """

    calls: int = 0
    errors: int = 0
    refused: int = 0
    items: int = 0
    read: float = 0.0
    write: float = 0.0
    seconds: float = 0.0
    slowest: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))

    def took(self, seconds: float, calls: int = 1) -> None:
        """Count a call, or some that went together, and how long it took."""
        self.calls += calls
        self.seconds += seconds * calls
        self.slowest = max(self.slowest, seconds)
        self.buckets[bisect_left(EDGES, seconds)] += calls

    def consumed(self, items: int, capacity: Capacity) -> None:
        """Count what one answer brought and cost."""
        self.items += items
        self.read += capacity.read
        self.write += capacity.write

    def quantile(self, share: float) -> float:
        """About how long the given share of calls took at most: exact to the width of a bucket, 0 before the first call."""
        wanted = share * self.calls
        below = 0
        for position, count in enumerate(self.buckets):
            if count and below + count >= wanted:
                low = EDGES[position - 1] if position else 0.0
                high = min(EDGES[position], self.slowest) if position < len(EDGES) else self.slowest
                return low + (high - low) * (wanted - below) / count
            below += count
        return self.slowest


@dataclass(slots=True)
class PatternMeter:
    """A pattern's figures: of its calls as a whole, and of each operation that it makes."""

    whole: Meter
    operations: dict[UseKey, Meter]

    @property
    def errors(self) -> int:
        """Trouble with its operations, and accesses that it had not declared."""
        return self.whole.errors + sum(meter.errors for meter in self.operations.values())

    @property
    def refused(self) -> int:
        return sum(meter.refused for meter in self.operations.values())

    @property
    def items(self) -> int:
        return sum(meter.items for meter in self.operations.values())

    @property
    def capacity(self) -> Capacity:
        return sum(
            (Capacity(meter.read, meter.write) for meter in self.operations.values()), Capacity()
        )


class Meters:
    """The meters of one program's patterns, each made when it is first asked for."""

    def __init__(self) -> None:
        self._by_pattern: dict[AccessPattern, PatternMeter] = {}

    def of(self, pattern: AccessPattern) -> PatternMeter:
        """The pattern's meter."""
        found = self._by_pattern.get(pattern)
        if found is None:
            found = PatternMeter(Meter(), {key: Meter() for key in pattern.allowed})
            self._by_pattern[pattern] = found
        return found
