"""How fast things happen: counters that the program keeps anyway, read once a second, for all who look.

rates = Rates(clock, counters_of(desk))
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
from tally.store.access import pattern_of
from tally.store.meters import Meter

SECONDS: Final = 1.0
# A rate is over this many samples: calm enough to read, and soon up to date.
KEPT: Final = 10

Counter = Callable[[], float]


class CounterRates:
    """Counters by name: what they stand at, and how fast they have risen of late."""

    def __init__(self, clock: Clock, counters: Mapping[str, Counter]) -> None:
        self._clock = clock
        self._counters = counters
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=KEPT + 1)

    async def run(self) -> None:
        """Take a sample every second; until cancelled."""
        while True:
            self.sample()
            await self._clock.sleep(SECONDS)

    def sample(self) -> None:
        self._samples.append(
            (self._clock.monotonic(), {name: read() for name, read in self._counters.items()})
        )

    def total(self, name: str) -> float:
        """Since the program started."""
        return self._counters[name]()

    def rate(self, name: str) -> float:
        """A second, over the last ten; 0 before there are two samples."""
        if len(self._samples) < 2:
            return 0.0
        (begun, before), (ended, after) = self._samples[0], self._samples[-1]
        return (after[name] - before[name]) / (ended - begun) if ended > begun else 0.0


def program_counters(context: ConsoleContext) -> dict[str, Counter]:
    """What the console tells the speed of: the store's accesses, and what each backend that runs here is there for."""
    metrics, reads, writes = context.traffic.metrics, *_store_meters(context)
    counters: dict[str, Counter] = {
        "store reads": lambda: _calls(reads),
        "store writes": lambda: _calls(writes),
        "store seconds": lambda: sum(meter.seconds for meter in chain(reads, writes)),
    }
    if context.backend("cricket", Cricket) is not None:
        counters["pushes"] = lambda: _counted(
            metrics, "tally_apns_pushes_total", outcome="delivered"
        )
    if context.backend("collect", Collect) is not None:
        counters["workouts"] = lambda: _counted(metrics, "tally_collect_event_lag_seconds_count")
    pattern = pattern_of(ReadingRepository.store_each)
    if context.backend("devices", Devices) is not None and pattern is not None:
        stored = list(context.store.meters.of(pattern).operations.values())
        counters["readings"] = lambda: sum(
            meter.calls - meter.refused - meter.errors for meter in stored
        )
    return counters


def _store_meters(context: ConsoleContext) -> tuple[list[Meter], list[Meter]]:
    """The meters of all reads, and of all writes, of all access patterns."""
    reads: list[Meter] = []
    writes: list[Meter] = []
    for entry in context.catalogue.entries():
        held = context.store.meters.of(entry.pattern)
        for use in {use.key: use for use in entry.pattern.operation.uses}.values():
            (reads if use.reads_only else writes).append(held.operations[use.key])
    return reads, writes


def _calls(meters: Iterable[Meter]) -> float:
    return sum(meter.calls for meter in meters)


def _counted(metrics: Metrics, name: str, **labels: str) -> float:
    """What one of the program's own metrics stands at; the others are not gathered for it."""
    for family in metrics.registry.restricted_registry([name]).collect():
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return 0.0
