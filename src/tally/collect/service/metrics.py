"""What operators want to know of the inbox: how much waits, how long it waits, and what had to wait longer."""

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


class InboxFigures:
    """Figures of one process's worker."""

    def __init__(self, metrics: Metrics) -> None:
        registry = metrics.registry
        self.lag = Histogram(
            "tally_collect_event_lag_seconds",
            "Strava's events that were applied: how long from their receipt",
            registry=registry,
            buckets=LAG_BUCKETS,
        )
        self.put_off = Counter(
            "tally_collect_events_put_off",
            "Strava's events that failed, and wait",
            registry=registry,
        )
        self.waiting = Gauge(
            "tally_collect_inbox_waiting",
            "Strava's events in the inbox, at the last look",
            registry=registry,
        )
