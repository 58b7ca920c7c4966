"""How long the calls to PostgreSQL and Redis take, by the name of the call, for `GET /metrics`."""

from prometheus_client import Histogram

from tally.kit.metrics import REQUEST_BUCKETS, Metrics


class StorageFigures:
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

    def observe(self, server: str, call: str, outcome: str, seconds: float) -> None:
        """Count a call; `outcome` is ok, refused (the server said no) or away (it did not answer)."""
        series = self._series.get((server, call, outcome))
        if series is None:
            series = self._series[server, call, outcome] = self._calls.labels(server, call, outcome)
        series.observe(seconds)
