"""Rates of existing counters, sampled once a second for all open pages.

rates = CounterRates(clock, program_counters(context))
rates.rate("readings"), rates.total("readings")
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final

from tally.collect.wiring import Collect
from tally.console.context import ConsoleContext
from tally.cricket.wiring.backend import Cricket
from tally.devices.repository.readings import ReadingRepository
from tally.devices.wiring import Devices
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.store.access import access_pattern
from tally.store.meters import Meter

SAMPLE_SECONDS: Final = 1.0
# Samples per rate: enough to smooth bursts, few enough to follow a change.
WINDOW_SAMPLES: Final = 10

Counter = Callable[[], float]


class CounterRates:
    """Named counters with their current value and their recent rate."""

    def __init__(self, clock: Clock, counters: Mapping[str, Counter]) -> None:
        self._clock = clock
        self._counters = counters
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=WINDOW_SAMPLES + 1)

    async def run(self) -> None:
        """Sample every second until cancelled."""
        while True:
            self.sample()
            await self._clock.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        self._samples.append(
            (self._clock.monotonic(), {name: read() for name, read in self._counters.items()})
        )

    def total(self, name: str) -> float:
        """Return the counter's value since the start of the process."""
        return self._counters[name]()

    def rate(self, name: str) -> float:
        """Return the increase per second over the window; 0 before the second sample."""
        if len(self._samples) < 2:
            return 0.0
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        return (after[name] - before[name]) / (end - start) if end > start else 0.0


def program_counters(context: ConsoleContext) -> dict[str, Counter]:
    """Return the counters of the store and of each backend that this instance runs."""
    metrics, reads, writes = context.traffic.metrics, *_store_meters(context)
    counters: dict[str, Counter] = {
        "store reads": lambda: _calls(reads),
        "store writes": lambda: _calls(writes),
        "store seconds": lambda: sum(meter.seconds for meter in chain(reads, writes)),
    }
    if context.backend("cricket", Cricket) is not None:
        counters["pushes"] = lambda: _metric_value(
            metrics, "tally_apns_pushes_total", outcome="delivered"
        )
    if context.backend("collect", Collect) is not None:
        counters["workouts"] = lambda: _metric_value(
            metrics, "tally_collect_event_lag_seconds_count"
        )
    pattern = access_pattern(ReadingRepository.store_each)
    if context.backend("devices", Devices) is not None and pattern is not None:
        stored = list(context.store.meters.of(pattern).operations.values())
        counters["readings"] = lambda: sum(
            meter.calls - meter.rejected - meter.errors for meter in stored
        )
    return counters


def _store_meters(context: ConsoleContext) -> tuple[list[Meter], list[Meter]]:
    """Return the meters of all reads and of all writes, over all access patterns."""
    reads: list[Meter] = []
    writes: list[Meter] = []
    for entry in context.catalogue.entries():
        meters = context.store.meters.of(entry.pattern)
        for use in {use.key: use for use in entry.pattern.operation.uses}.values():
            (reads if use.reads_only else writes).append(meters.operations[use.key])
    return reads, writes


def _calls(meters: Iterable[Meter]) -> float:
    return sum(meter.calls for meter in meters)


def _metric_value(metrics: Metrics, name: str, **labels: str) -> float:
    """Return the value of one metric without collecting the others."""
    for family in metrics.registry.restricted_registry([name]).collect():
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return 0.0
