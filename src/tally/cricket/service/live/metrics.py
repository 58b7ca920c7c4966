"""Metrics of the live feed: its age, the live matches, and the time from a poll to the pushes.

Only the instance that polls has values; on the others, the gauges are NaN.
"""

import math
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram

from tally.kit.clock import Clock

BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class FeedMetrics:
    """The metrics of this instance."""

    def __init__(self, clock: Clock, registry: CollectorRegistry) -> None:
        self._clock = clock
        self._polled_at: float | None = None
        # The latest value of the histogram; NaN before the first delivery.
        self.last_to_push = math.nan
        # By match: the timestamp of its last update, and when its poll arrived.
        self._updates: dict[str, tuple[int, int]] = {}
        age = Gauge(
            "tally_cricket_feed_age_seconds",
            "Seconds since the last successful poll of live scores, on the instance that polls",
            registry=registry,
        )
        age.set_function(self.feed_age)
        self._live = Gauge(
            "tally_cricket_live_matches", "Live matches, on the polling instance", registry=registry
        )
        self._to_push = Histogram(
            "tally_cricket_feed_to_push_seconds",
            "Seconds from the arrival of a poll until all devices had its update",
            buckets=BUCKETS,
            registry=registry,
        )

    def feed_age(self) -> float:
        """Return the seconds since the last successful poll; NaN if this instance does not poll."""
        return math.nan if self._polled_at is None else self._clock.monotonic() - self._polled_at

    def record_poll(self, live_matches: int) -> None:
        self._polled_at = self._clock.monotonic()
        self._live.set(live_matches)

    def record_start(self) -> None:
        """Count the age from now on, even if no poll succeeds."""
        self._polled_at = self._clock.monotonic()

    def record_stop(self) -> None:
        """Another instance polls."""
        self._polled_at = None
        self.last_to_push = math.nan
        self._live.set(math.nan)
        self._updates.clear()

    def record_update(self, match_id: str, timestamp: int, received_at: int) -> None:
        """Record that an update is on its way to devices."""
        self._updates[match_id] = timestamp, received_at

    def record_delivery(self, match_id: str, timestamp: int) -> None:
        """Record that all devices have an update."""
        known, received_at = self._updates.get(match_id, (None, 0))
        if known == timestamp:
            del self._updates[match_id]
            self.last_to_push = max(0, self._clock.milliseconds() - received_at) / 1000
            self._to_push.observe(self.last_to_push)
