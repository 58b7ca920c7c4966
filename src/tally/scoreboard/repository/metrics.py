"""Prometheus metrics of the calls to PostgreSQL and Redis."""

from typing import Final

from prometheus_client import Histogram

from tally.kit.metrics import Metrics

# An unavailable server fails every request: the first failure is logged, and another outage at most
# this often.
LOG_INTERVAL_SECONDS: Final = 5.0
BUCKET_BOUNDS_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5)


class StorageMetrics:
    """The duration histogram of both servers. Label lookups are cached: it is on the hot path."""

    def __init__(self, metrics: Metrics) -> None:
        self._calls = Histogram(
            "tally_scoreboard_storage_call_duration_seconds",
            "Duration of calls to PostgreSQL and Redis, by call and outcome.",
            ["server", "call", "outcome"],
            registry=metrics.registry,
            buckets=BUCKET_BOUNDS_SECONDS,
        )
        self._series: dict[tuple[str, str, str], Histogram] = {}
        self._logged_at: dict[str, float] = {}
        self._failing: set[str] = set()

    def observe(self, server: str, call: str, outcome: str, seconds: float) -> None:
        """Record a call; `outcome` is ok, rejected (an error reply) or unavailable (no reply)."""
        series = self._series.get((server, call, outcome))
        if series is None:
            series = self._series[server, call, outcome] = self._calls.labels(server, call, outcome)
        series.observe(seconds)
        if outcome == "ok":
            self._failing.discard(server)

    def should_log(self, server: str, now: float) -> bool:
        """Return whether to log a failure: true for the first one of an outage."""
        is_first = server not in self._failing
        self._failing.add(server)
        last = self._logged_at.get(server, -LOG_INTERVAL_SECONDS)
        if not is_first or now - last < LOG_INTERVAL_SECONDS:
            return False
        self._logged_at[server] = now
        return True
