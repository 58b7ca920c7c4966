"""How long the calls to PostgreSQL and Redis take, by the name of the call, for `GET /metrics`."""

from typing import Final

from prometheus_client import Histogram

from tally.kit.metrics import REQUEST_BUCKETS, Metrics

# A server that is away fails every request, and need not be told of each time.
NEWS_SECONDS: Final = 5.0


class StorageMetrics:
    """One histogram for both servers; the series are kept at hand, since every request makes several calls."""

    def __init__(self, metrics: Metrics) -> None:
        self._calls = Histogram(
            "tally_scoreboard_storage_seconds",
            "Calls to PostgreSQL and Redis by name and outcome, and how long they took",
            ["server", "call", "outcome"],
            registry=metrics.registry,
            buckets=REQUEST_BUCKETS,
        )
        self._series: dict[tuple[str, str, str], Histogram] = {}
        self._told_at: dict[str, float] = {}

    def observe(self, server: str, call: str, outcome: str, seconds: float) -> None:
        """Count a call; `outcome` is ok, refused (the server said no) or away (it did not answer)."""
        series = self._series.get((server, call, outcome))
        if series is None:
            series = self._series[server, call, outcome] = self._calls.labels(server, call, outcome)
        series.observe(seconds)

    def should_log(self, server: str, now: float) -> bool:
        """Whether trouble with the server is worth a line in the log: not if it had one a moment ago."""
        if now - self._told_at.get(server, -NEWS_SECONDS) < NEWS_SECONDS:
            return False
        self._told_at[server] = now
        return True
