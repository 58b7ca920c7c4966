"""Counts and durations of HTTP requests: per route without buckets, per backend with buckets.

Buckets per route would be thousands of time series. The event loop's thread records requests in
plain numbers, which is cheaper than the client library's locks; `/metrics` collects them on
another thread.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

HTTP_SERVER_ERROR: Final = 500
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKET_BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


@dataclass(slots=True)
class _BackendMeter:
    """The requests of one backend by duration."""

    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_BOUNDS) + 1))


@dataclass(slots=True)
class _RouteMeter:
    """The requests of one method, route and status."""

    backend: _BackendMeter
    requests: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BackendTotals:
    """All requests of a backend, its 5xx responses, and how long they took."""

    requests: int = 0
    failures: int = 0
    seconds: float = 0.0
    # The number of requests in each bucket of BUCKET_BOUNDS, and of longer ones.
    buckets: tuple[int, ...] = ()


class RequestMetrics(Collector):
    """The meters of all requests."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str, int], _RouteMeter] = {}
        self._backends: dict[str, _BackendMeter] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a request; a method that HTTP does not define counts as `other`."""
        meter = self._routes.get((method, route, status))
        if meter is None:
            meter = self._create(method if method in METHODS else "other", route, status)
        meter.requests += 1
        meter.seconds += seconds
        meter.backend.seconds += seconds
        meter.backend.buckets[bisect_left(BUCKET_BOUNDS, seconds)] += 1

    def count(self) -> int:
        """Return the number of all requests."""
        return sum(meter.requests for meter in self._routes.values())

    def totals(self) -> dict[str, BackendTotals]:
        """Return the totals of each backend; cheaper than `collect`."""
        failures: Counter[int] = Counter()
        for (_, _, status), meter in self._routes.items():
            if status >= HTTP_SERVER_ERROR:
                failures[id(meter.backend)] += meter.requests
        return {
            name: BackendTotals(
                sum(total.buckets), failures[id(total)], total.seconds, tuple(total.buckets)
            )
            for name, total in self._backends.items()
        }

    def _create(self, method: str, route: str, status: int) -> _RouteMeter:
        name, slash, _ = route[1:].partition("/")
        backend = self._backends.setdefault(name if slash else "instance", _BackendMeter())
        return self._routes.setdefault((method, route, status), _RouteMeter(backend))

    def describe(self) -> list[SummaryMetricFamily | HistogramMetricFamily]:
        """Return nothing: registration must not depend on previous requests."""
        return []

    def collect(self) -> Iterator[SummaryMetricFamily | HistogramMetricFamily]:
        """Yield the current values."""
        routes = SummaryMetricFamily(
            "tally_http_request_duration_seconds",
            "Duration of HTTP requests until the response was complete, by route and status",
            labels=("method", "route", "status"),
        )
        # Copies, because the event loop adds meters meanwhile.
        for (method, route, status), meter in list(self._routes.items()):
            routes.add_metric((method, route, str(status)), meter.requests, meter.seconds)
        backends = HistogramMetricFamily(
            "tally_http_backend_duration_seconds",
            "Duration of HTTP requests until the response was complete, by backend",
            labels=("backend",),
        )
        edges = (*map(str, BUCKET_BOUNDS), "+Inf")
        for name, total in list(self._backends.items()):
            cumulative = list(zip(edges, accumulate(total.buckets), strict=True))
            backends.add_metric((name,), cumulative, total.seconds)
        yield routes
        yield backends
