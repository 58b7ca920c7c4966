"""Exports the meters of the access patterns to Prometheus, summed per table and per operation.

metrics.registry.register(PatternCollector(catalogue, store.meters))

Series per pattern would be thousands; `/patterns` and `tally patterns --url` show the patterns.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tally.store.catalogue import Catalogue
from tally.store.meters import BUCKET_BOUNDS, Meter, Meters

_COUNTERS = {
    "errors": "Failed operations by table.",
    "rejected": "Rejected operations by table, such as a failed condition.",
    "items": "Items found, written or changed by table.",
    "read_units": "Consumed read capacity units by table.",
    "write_units": "Consumed write capacity units by table.",
}
_ATTRIBUTES = {"read_units": "read", "write_units": "write"}  # where a meter's name differs
# The bounds of the exported buckets, a part of the meters'.
_EXPORTED_BOUNDS = (0.0001, 0.0005, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0)


class PatternCollector(Collector):
    """Collects counters per table and a histogram per operation."""

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
            "Duration of operations by operation.",
            labels=("operation",),
        )
        counters = {
            name: CounterMetricFamily(
                f"tally_store_operation_{name}", help_text, labels=("backend", "table")
            )
            for name, help_text in _COUNTERS.items()
        }
        by_operation, by_table = self._sums()
        for operation, meter in by_operation.items():
            seconds.add_metric((operation,), _cumulative(meter), meter.seconds)
        for labels, meter in by_table.items():
            for name, counter in counters.items():
                counter.add_metric(labels, getattr(meter, _ATTRIBUTES.get(name, name)))
        yield seconds
        yield from counters.values()

    def _sums(self) -> tuple[dict[str, Meter], dict[tuple[str, str], Meter]]:
        """Return the sums by operation, and by backend and table."""
        by_operation: dict[str, Meter] = {}
        by_table: dict[tuple[str, str], Meter] = {}
        for entry in self._catalogue.entries():
            table = by_table.setdefault((entry.backend, entry.pattern.table.name), Meter())
            for (operation, _), meter in self._meters.of(entry.pattern).operations.items():
                table.add(meter)
                by_operation.setdefault(operation, Meter()).add(meter)
        return by_operation, by_table


def _cumulative(meter: Meter) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip(BUCKET_BOUNDS, meter.buckets, strict=False):
        total += count
        if bound in _EXPORTED_BOUNDS:
            buckets.append((str(bound), total))
    return [*buckets, ("+Inf", sum(meter.buckets))]
