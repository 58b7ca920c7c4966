"""Metrics of Live Activities: their number by status, and the share that devices have confirmed.

The sweep of a match reads all its activities anyway. An instance exports the matches that it swept
within the last minute. Every instance sweeps every live match, except while another one does, so
the instances report the same activities: across instances, take the maximum.
"""

import math
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from tally.cricket.model.records import ActivityStatus, LiveActivity
from tally.kit.clock import Clock

MAX_AGE_SECONDS: Final = 60.0


class ActivityCounts:
    """The activities of the matches that this instance swept last."""

    def __init__(self, clock: Clock, registry: CollectorRegistry) -> None:
        self._clock = clock
        # By match: the time of the sweep and the activities by status. A sweep replaces the
        # dictionary, because metrics are rendered on another thread.
        self._sweeps: dict[str, tuple[float, Counter[ActivityStatus]]] = {}
        activities = Gauge(
            "tally_cricket_activities",
            "Live Activities of live matches by status",
            ["status"],
            registry=registry,
        )
        for status in ActivityStatus:
            activities.labels(status.value).set_function(partial(self.count, status))
        confirmed = Gauge(
            "tally_cricket_activities_confirmed_ratio",
            "Share of the started Live Activities that their devices confirmed; NaN without any",
            registry=registry,
        )
        confirmed.set_function(self.confirmed_ratio)

    async def counted(
        self, match_id: str, activities: AsyncIterator[LiveActivity]
    ) -> AsyncGenerator[LiveActivity, None]:
        """Yield the activities of a match, and count them."""
        counts: Counter[ActivityStatus] = Counter()
        async for activity in activities:
            counts[activity.status] += 1
            yield activity
        now = self._clock.monotonic()
        recent = {
            known: sweep
            for known, sweep in self._sweeps.items()
            if now - sweep[0] <= MAX_AGE_SECONDS
        }
        self._sweeps = recent | {match_id: (now, counts)}

    def count(self, status: ActivityStatus) -> int:
        """Return the number of activities with this status."""
        now = self._clock.monotonic()
        return sum(
            counts[status]
            for swept_at, counts in self._sweeps.values()
            if now - swept_at <= MAX_AGE_SECONDS
        )

    def confirmed_ratio(self) -> float:
        active, pending = self.count(ActivityStatus.ACTIVE), self.count(ActivityStatus.PENDING)
        return active / (active + pending) if active + pending else math.nan
