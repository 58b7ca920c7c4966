"""Exports the meters of all access patterns to Prometheus.

metrics.registry.register(PatternCollector(catalogue, store.meters))
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tally.store.catalogue import Catalogue
from tally.store.meters import BUCKET_BOUNDS, Meter, Meters

_LABELS = ("backend", "table", "pattern", "operation", "index")
_COUNTERS = {
    "errors": "Failed operations by access pattern.",
    "rejected": "Rejected operations by access pattern, such as a failed condition.",
    "items": "Items found, written or changed by access pattern.",
    "read_units": "Consumed read capacity units by access pattern.",
    "write_units": "Consumed write capacity units by access pattern.",
}
_ATTRIBUTES = {"read_units": "read", "write_units": "write"}  # where a meter's name differs


class PatternCollector(Collector):
    """Collects one series per operation of each pattern."""

    def __init__(self, catalogue: Catalogue, meters: Meters) -> None:
        self._catalogue = catalogue
        self._meters = meters
        # Rendering runs on another thread, which must not create a meter beside the event loop.
        for entry in catalogue.entries():
            meters.of(entry.pattern)

    def describe(self) -> list[CounterMetricFamily | HistogramMetricFamily]:
        """Return nothing: registration must not depend on previous calls."""
        return []

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        """Yield the current values."""
        seconds = HistogramMetricFamily(
            "tally_store_operation_duration_seconds",
            "Duration of operations by access pattern.",
            labels=_LABELS,
        )
        counters = {
            name: CounterMetricFamily(f"tally_store_operation_{name}", help_text, labels=_LABELS)
            for name, help_text in _COUNTERS.items()
        }
        for labels, meter in self._series():
            seconds.add_metric(labels, _cumulative(meter), meter.seconds)
            for name, counter in counters.items():
                counter.add_metric(labels, getattr(meter, _ATTRIBUTES.get(name, name)))
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
    for edge, count in zip((*map(str, BUCKET_BOUNDS), "+Inf"), meter.buckets, strict=True):
        total += count
        buckets.append((edge, total))
    return buckets
