"""Request rates of the last minutes, sampled from the metrics every second for charts.

Use Prometheus for history; this keeps only what a new visitor's chart needs.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric

from tally.kit.clock import Clock
from tally.kit.metrics import Metrics

SAMPLE_SECONDS: Final = 1.0
MAX_SAMPLES: Final = 180


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests per second, 5xx responses per second and mean latency of one backend."""

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
    """One sample per second and backend."""

    metrics: Metrics
    clock: Clock
    timestamps: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    by_backend: dict[str, deque[Traffic]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=MAX_SAMPLES))
    )
    _last_totals: Mapping[str, _Total] = field(default_factory=dict)
    _last_sampled_at: float | None = None

    async def run(self) -> None:
        """Sample every second until cancelled."""
        while True:
            self.sample()
            await self.clock.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        now, totals = self.clock.monotonic(), self._read()
        if self._last_sampled_at is not None and now > self._last_sampled_at:
            elapsed = now - self._last_sampled_at
            self.timestamps.append(self.clock.time_ns() / 1e9)
            for backend, total in totals.items():
                self.by_backend[backend].append(
                    _difference(self._last_totals.get(backend, _Total()), total, elapsed)
                )
        self._last_sampled_at, self._last_totals = now, totals

    def latest(self, backend: str) -> Traffic:
        """Return the mean of the last five seconds; single seconds fluctuate too much to read."""
        recent = list(self.by_backend[backend])[-5:]
        if not recent:
            return Traffic(0.0, 0.0, 0.0)
        requests = sum(sample.requests for sample in recent)
        mean = (
            sum(sample.mean_ms * sample.requests for sample in recent) / requests
            if requests
            else 0.0
        )
        return Traffic(
            requests / len(recent), sum(sample.failures for sample in recent) / len(recent), mean
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
        metric: Metric
        for metric in self.metrics.requests.collect():
            for sample in metric.samples:
                yield (
                    sample.name,
                    sample.labels.get("route", ""),
                    sample.labels.get("status", ""),
                    sample.value,
                )


def _difference(before: _Total, after: _Total, elapsed: float) -> Traffic:
    requests = after.requests - before.requests
    mean = 1000 * (after.seconds - before.seconds) / requests if requests else 0.0
    return Traffic(requests / elapsed, (after.failures - before.failures) / elapsed, mean)
