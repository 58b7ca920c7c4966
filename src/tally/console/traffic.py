"""Figures over the last minutes, for the console's charts: sampled once a second from the metrics of the program.

Prometheus keeps the real ones; these are what a person sees who has just opened the page.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric

from tally.kit.clock import Clock
from tally.kit.metrics import Metrics

SECONDS: Final = 1.0
KEPT: Final = 180


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one backend answered in one second: requests, those that failed with a 5xx, and their mean in milliseconds."""

    requests: float
    failures: float
    mean_ms: float


@dataclass(slots=True)
class _Total:
    requests: float = 0.0
    failures: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class TrafficHistory:
    """The last minutes, second by second."""

    metrics: Metrics
    clock: Clock
    moments: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    traffic: dict[str, deque[Traffic]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=KEPT))
    )
    _totals: Mapping[str, _Total] = field(default_factory=dict)
    _at: float | None = None

    async def run(self) -> None:
        """Take a sample every second; until cancelled."""
        while True:
            self.sample()
            await self.clock.sleep(SECONDS)

    def sample(self) -> None:
        now, totals = self.clock.monotonic(), self._read()
        if self._at is not None and now > self._at:
            passed = now - self._at
            self.moments.append(self.clock.time_ns() / 1e9)
            for backend, total in totals.items():
                self.traffic[backend].append(
                    _between(self._totals.get(backend, _Total()), total, passed)
                )
        self._at, self._totals = now, totals

    def latest(self, backend: str) -> Traffic:
        """The mean of the last five seconds, which is calm enough to read."""
        recent = list(self.traffic[backend])[-5:]
        if not recent:
            return Traffic(0.0, 0.0, 0.0)
        requests = sum(each.requests for each in recent)
        mean = sum(each.mean_ms * each.requests for each in recent) / requests if requests else 0.0
        return Traffic(
            requests / len(recent), sum(each.failures for each in recent) / len(recent), mean
        )

    def _read(self) -> Mapping[str, _Total]:
        totals: dict[str, _Total] = defaultdict(_Total)
        for name, route, status, value in self._samples():
            total = totals[route.split("/", 2)[1] if route.startswith("/") else ""]
            if name.endswith("_count"):
                total.requests += value
                total.failures += value if status.startswith("5") else 0.0
            elif name.endswith("_sum"):
                total.seconds += value
        return totals

    def _samples(self) -> Iterator[tuple[str, str, str, float]]:
        collected: Metric
        for collected in self.metrics.requests.collect():
            for sample in collected.samples:
                yield (
                    sample.name,
                    sample.labels.get("route", ""),
                    sample.labels.get("status", ""),
                    sample.value,
                )


def _between(before: _Total, after: _Total, passed: float) -> Traffic:
    requests = after.requests - before.requests
    mean = 1000 * (after.seconds - before.seconds) / requests if requests else 0.0
    return Traffic(requests / passed, (after.failures - before.failures) / passed, mean)
