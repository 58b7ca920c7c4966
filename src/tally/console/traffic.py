"""Requests, failures and latencies of the last 24 hours, sampled from the metrics for charts.

Samples are kept in memory at three resolutions, so that a day takes little memory and the last
minutes are exact. The history starts with the process; use Prometheus for a longer one.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.kit.request_metrics import BUCKET_BOUNDS, BackendTotals

SAMPLE_SECONDS: Final = 1.0
# Seconds between samples, and the number of samples: 10 minutes, 1 hour, 24 hours.
RESOLUTIONS: Final = ((1, 600), (10, 360), (60, 1_440))
# A timer is late by some milliseconds; a sample may be early by this share of a second.
TOLERANCE_SECONDS: Final = 0.5
PERCENTILES: Final = (50, 95, 99)
RECENT_SAMPLES: Final = 5
NO_REQUESTS: Final = BackendTotals()


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests and 5xx responses per second, and latencies, of one backend in an interval.

    `percentiles_ms` are those of PERCENTILES, estimated from the buckets of the metrics.
    """

    requests: float = 0.0
    failures: float = 0.0
    mean_ms: float = 0.0
    percentiles_ms: tuple[float, ...] = (0.0,) * len(PERCENTILES)


# Shared by all intervals without requests, which need no memory of their own.
IDLE: Final = Traffic()


@dataclass(frozen=True, slots=True)
class TrafficSample:
    """The traffic of each backend in the interval that ended at `time`, in epoch seconds."""

    time: float
    by_backend: Mapping[str, Traffic]

    def of(self, backend: str) -> Traffic:
        return self.by_backend.get(backend, IDLE)


class _Ring:
    """The latest samples at one resolution."""

    def __init__(self, seconds: float, capacity: int) -> None:
        self.samples: deque[TrafficSample] = deque(maxlen=capacity)
        self.span = seconds * capacity
        self._seconds = seconds
        self._last: tuple[float, Mapping[str, BackendTotals]] | None = None

    def add(self, now: float, time: float, totals: Mapping[str, BackendTotals]) -> None:
        """Append a sample if the interval is over; `now` is monotonic."""
        if self._last is not None:
            last_at, before = self._last
            if now - last_at < max(self._seconds - TOLERANCE_SECONDS, TOLERANCE_SECONDS):
                return
            by_backend = {
                name: _difference(before.get(name, NO_REQUESTS), after, now - last_at)
                for name, after in totals.items()
            }
            self.samples.append(TrafficSample(time, by_backend))
        self._last = now, totals


@dataclass(slots=True)
class TrafficHistory:
    """Samples of all backends since the start of the process, for at most 24 hours."""

    metrics: Metrics
    clock: Clock
    _rings: tuple[_Ring, ...] = field(
        default_factory=lambda: tuple(_Ring(seconds, count) for seconds, count in RESOLUTIONS)
    )

    async def run(self) -> None:
        """Sample every second until cancelled."""
        while True:
            self.sample()
            await self.clock.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        now, time = self.clock.monotonic(), self.clock.time_ns() / 1e9
        totals = self.metrics.requests.totals()
        for ring in self._rings:
            ring.add(now, time, totals)

    def samples(self, seconds: float) -> list[TrafficSample]:
        """Return the samples of the last seconds, at the finest resolution that covers them."""
        ring = next((ring for ring in self._rings if ring.span >= seconds), self._rings[-1])
        since = self.clock.time_ns() / 1e9 - seconds
        return [sample for sample in ring.samples if sample.time >= since]

    def latest(self, backend: str) -> Traffic:
        """Return the mean of the last five seconds; single seconds fluctuate too much to read."""
        samples = self._rings[0].samples
        start = max(0, len(samples) - RECENT_SAMPLES)
        recent = [samples[position].of(backend) for position in range(start, len(samples))]
        if not recent:
            return IDLE
        requests = sum(sample.requests for sample in recent)
        weighted = sum(sample.mean_ms * sample.requests for sample in recent)
        return Traffic(
            requests / len(recent),
            sum(sample.failures for sample in recent) / len(recent),
            weighted / requests if requests else 0.0,
        )


def _difference(before: BackendTotals, after: BackendTotals, elapsed: float) -> Traffic:
    requests = after.requests - before.requests
    if not requests:
        return IDLE
    earlier = before.buckets or (0,) * len(after.buckets)
    counts = [now - then for now, then in zip(after.buckets, earlier, strict=True)]
    return Traffic(
        requests / elapsed,
        (after.failures - before.failures) / elapsed,
        1000 * (after.seconds - before.seconds) / requests,
        tuple(1000 * estimate_percentile(counts, percent) for percent in PERCENTILES),
    )


def estimate_percentile(counts: Sequence[int], percent: float) -> float:
    """Estimate a percentile in seconds from the counts per bucket, like Prometheus does.

    Within a bucket, durations count as evenly spread; above the last bound, as that bound.
    """
    total = sum(counts)
    rank, below = total * percent / 100, 0
    for count, (lower, upper) in zip(counts, pairwise((0.0, *BUCKET_BOUNDS)), strict=False):
        if count and below + count >= rank:
            return lower + (upper - lower) * (rank - below) / count
        below += count
    return BUCKET_BOUNDS[-1] if total else 0.0
