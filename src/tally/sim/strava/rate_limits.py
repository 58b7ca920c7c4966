"""Strava's rate limits: per 15 minutes and per day, for all requests and for reads.

Windows are aligned: they start at :00, :15, :30 and :45, and at midnight UTC. Rejected requests
count too.
"""

from typing import Final

import msgspec

from tally.kit.clock import Clock

QUARTER_HOUR_SECONDS: Final = 15 * 60
DAY_SECONDS: Final = 24 * 3600


class RateLimit(msgspec.Struct, frozen=True):
    """The maximum number of requests per 15 minutes and per day."""

    quarter: int
    day: int


OVERALL_LIMIT: Final = RateLimit(200, 2000)
READ_LIMIT: Final = RateLimit(100, 1000)
# For fleets, which would exhaust a daily limit within seconds.
UNLIMITED: Final = RateLimit(10**9, 10**9)


class RateLimits:
    """Counts requests per window."""

    def __init__(
        self, clock: Clock, overall: RateLimit = OVERALL_LIMIT, reads: RateLimit = READ_LIMIT
    ) -> None:
        self._clock = clock
        self.overall = overall
        self.reads = reads
        self._counts: dict[tuple[str, int, int], int] = {}

    def count(self, is_read: bool = True) -> bool:
        """Count a request; whether it is within the limits."""
        for kind in ("overall", "reads") if is_read else ("overall",):
            for window in self._windows(kind):
                self._counts[window] = self._counts.get(window, 0) + 1
        live = {window for kind in ("overall", "reads") for window in self._windows(kind)}
        self._counts = {window: count for window, count in self._counts.items() if window in live}
        kinds = (("overall", self.overall), ("reads", self.reads))[: 2 if is_read else 1]
        return all(
            self.usage(kind).quarter <= limit.quarter and self.usage(kind).day <= limit.day
            for kind, limit in kinds
        )

    def usage(self, kind: str) -> RateLimit:
        quarter, day = (self._counts.get(window, 0) for window in self._windows(kind))
        return RateLimit(quarter, day)

    def headers(self) -> dict[str, str]:
        headers = {}
        for prefix, kind, limit in (
            ("X-RateLimit", "overall", self.overall),
            ("X-ReadRateLimit", "reads", self.reads),
        ):
            used = self.usage(kind)
            headers[f"{prefix}-Limit"] = f"{limit.quarter},{limit.day}"
            headers[f"{prefix}-Usage"] = f"{used.quarter},{used.day}"
        return headers

    def _windows(self, kind: str) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
        now = self._clock.seconds()
        return (kind, QUARTER_HOUR_SECONDS, now // QUARTER_HOUR_SECONDS), (
            kind,
            DAY_SECONDS,
            now // DAY_SECONDS,
        )
