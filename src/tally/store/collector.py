"""The access patterns' figures for Prometheus, read from the meters when they are asked for.

metrics.registry.register(PatternCollector(catalogue, store.meters))
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tally.store.catalogue import Catalogue
from tally.store.meters import EDGES, Meter, Meters

_LABELS = ("backend", "table", "pattern", "operation", "index")
_COUNTERS = {
    "errors": "Operations that failed, by access pattern",
    "refused": "Operations refused by the store, a failed condition for instance, by access pattern",
    "items": "Items found, written or changed, by access pattern",
    "read": "Read capacity units consumed, by access pattern",
    "write": "Write capacity units consumed, by access pattern",
}


class PatternCollector(Collector):
    """All patterns of a catalogue, each operation of a pattern a series of its own."""

    def __init__(self, catalogue: Catalogue, meters: Meters) -> None:
        self._catalogue = catalogue
        self._meters = meters

    def describe(self) -> list[CounterMetricFamily | HistogramMetricFamily]:
        """Nothing beforehand: registering must not depend on what has been called."""
        return []

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        """The figures as they are now."""
        seconds = HistogramMetricFamily(
            "tally_store_operation_seconds",
            "How long operations took, by access pattern",
            labels=_LABELS,
        )
        counters = {
            name: CounterMetricFamily(f"tally_store_operation_{name}", about, labels=_LABELS)
            for name, about in _COUNTERS.items()
        }
        for labels, meter in self._series():
            seconds.add_metric(labels, _cumulative(meter), meter.seconds)
            for name, counter in counters.items():
                counter.add_metric(labels, getattr(meter, name))
        yield seconds
        yield from counters.values()

    def _series(self) -> Iterator[tuple[list[str], Meter]]:
        for entry in self._catalogue.entries():
            pattern = entry.pattern
            for (operation, index), meter in self._meters.of(pattern).operations.items():
                yield (
                    [entry.backend, pattern.table.name, pattern.name, operation, index or ""],
                    meter,
                )


def _cumulative(meter: Meter) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for edge, count in zip((*map(str, EDGES), "+Inf"), meter.buckets, strict=True):
        total += count
        buckets.append((edge, total))
    return buckets
