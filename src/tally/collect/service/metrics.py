"""Prometheus metrics of the webhook inbox."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from tally.kit.metrics import Metrics

LAG_BUCKETS: Final = (
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
)


class InboxMetrics:
    """Metrics of the inbox worker in this process."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self.lag = Histogram(
            "tally_collect_event_lag_seconds",
            "Time from receipt to completion of a Strava event",
            registry=registry,
            buckets=LAG_BUCKETS,
        )
        self.retries = Counter(
            "tally_collect_event_retries",
            "Strava events that failed and were scheduled for a retry",
            registry=registry,
        )
        self.pending = Gauge(
            "tally_collect_inbox_events",
            "Strava events in the inbox at the last poll",
            registry=registry,
        )
