"""Figures for Prometheus: one registry for each app, none global, so that tests and apps never share a counter.

The kit's own figures are fields of `Metrics`; a backend or the store makes its own on
`metrics.registry`. `GET
/metrics` answers with `render`.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Metrics"]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
JOB_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """The registry of an app, and the figures that the kit itself keeps."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Histogram(
            "tally_http_request_duration_seconds",
            "Requests by route: how many, and how long until the answer was complete",
            ["method", "route", "status"],
            registry=registry,
            buckets=REQUEST_BUCKETS,
        )
        self.requests_in_flight = 0
        under_way = Gauge(
            "tally_http_requests_in_flight", "Requests not yet answered", registry=registry
        )
        under_way.set_function(lambda: self.requests_in_flight)
        self.job_runs = Counter(
            "tally_job_runs",
            "Runs of jobs by how they ended",
            ["job_name", "outcome"],
            registry=registry,
        )
        self.job_seconds = Histogram(
            "tally_job_duration_seconds",
            "How long a run of a job took",
            ["job_name"],
            registry=registry,
            buckets=JOB_BUCKETS,
        )
        self.job_last_run = Gauge(
            "tally_job_last_run_timestamp_seconds",
            "When the last run of a job ended",
            ["job_name"],
            registry=registry,
        )
        self.breaker_state = Gauge(
            "tally_breaker_state",
            "0 closed, 1 half-open, 2 open: calls are refused",
            ["breaker"],
            registry=registry,
        )
        self.breaker_calls = Counter(
            "tally_breaker_calls",
            "Calls through a breaker by how they ended",
            ["breaker", "outcome"],
            registry=registry,
        )
        self.stream_clients = Gauge(
            "tally_stream_clients", "Clients of server-sent events", registry=registry
        )
        self.stream_messages = Counter(
            "tally_stream_messages", "Messages published to streams", registry=registry
        )
        self.stream_dropped = Counter(
            "tally_stream_clients_dropped", "Clients dropped for being too slow", registry=registry
        )
        self._request_series: dict[tuple[str, str, int], Histogram] = {}

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request.

        `route` is its template, never the path: clients must not be able to make up series.
        """
        key = (method, route, status)
        series = self._request_series.get(key)
        if series is None:
            label = method if method in METHODS else "other"
            series = self.requests.labels(label, route, str(status))
            if label == method:
                self._request_series[key] = series
        series.observe(seconds)

    def render(self) -> bytes:
        """The figures as text, of the content type that `CONTENT_TYPE` names."""
        return generate_latest(self.registry)
