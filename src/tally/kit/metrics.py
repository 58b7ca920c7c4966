"""Prometheus metrics: one registry per app and none global, so that tests never share a counter.

The kit's metrics are attributes of `Metrics`. Backends and the store register theirs with
`metrics.registry`. `GET /metrics` returns `render`, which runs on a thread of its own: functions
of gauges and collectors must not iterate over what the event loop changes.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    Summary,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from tally.kit.request_metrics import RequestMetrics

__all__ = ["CONTENT_TYPE", "Metrics"]

# A counter's time of creation would be a series of its own.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The registry of an app and the metrics of the kit."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = RequestMetrics()
        registry.register(self.requests)
        self.requests_in_flight = 0
        Gauge(
            "tally_http_requests_in_flight", "HTTP requests in progress", registry=registry
        ).set_function(lambda: self.requests_in_flight)
        self.job_runs = Counter(
            "tally_job_runs", "Job runs by outcome", ["job_name", "outcome"], registry=registry
        )
        self.job_duration = Summary(
            "tally_job_duration_seconds", "Duration of job runs", ["job_name"], registry=registry
        )
        self.job_last_run = Gauge(
            "tally_job_last_run_timestamp_seconds",
            "Time at which the last run of a job ended",
            ["job_name"],
            registry=registry,
        )
        self.breaker_state = Gauge(
            "tally_breaker_state",
            "State of a circuit breaker: 0 closed, 1 half-open, 2 open",
            ["breaker"],
            registry=registry,
        )
        self.breaker_calls = Counter(
            "tally_breaker_calls",
            "Calls through a circuit breaker by outcome",
            ["breaker", "outcome"],
            registry=registry,
        )
        self.stream_clients = Gauge(
            "tally_stream_clients", "Connected clients of server-sent events", registry=registry
        )
        self.stream_messages = Counter(
            "tally_stream_messages", "Messages published to topics", registry=registry
        )
        self.stream_dropped = Counter(
            "tally_stream_clients_dropped",
            "Clients dropped because they read too slowly",
            registry=registry,
        )
        self.failed_sign_ins = Counter(
            "tally_failed_sign_ins", "Failed sign-ins", ["backend", "reason"], registry=registry
        )

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a request.

        `route` is the template, never the path, so that clients cannot create time series.
        """
        self.requests.observe(method, route, status, seconds)

    def render(self) -> bytes:
        """Return the metrics in the text format that `CONTENT_TYPE` names."""
        return generate_latest(self.registry)
