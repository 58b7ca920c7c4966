"""How much an application may ask: by the quarter of an hour and by the day, all requests and reads counted apart.

The windows are natural ones: a quarter begins at :00, :15, :30 and :45, a day at midnight UTC. What
is asked beyond a limit is refused and counted all the same.
"""

from typing import Final

import msgspec

from tally.kit.clock import Clock

QUARTER: Final = 15 * 60
DAY: Final = 24 * 3600


class RateLimit(msgspec.Struct, frozen=True):
    """So many in a quarter of an hour, so many in a day."""

    quarter: int
    day: int


OVERALL_LIMIT: Final = RateLimit(200, 2000)
READ_LIMIT: Final = RateLimit(100, 1000)
# For fleets, which would use up a day's worth in seconds.
UNLIMITED: Final = RateLimit(10**9, 10**9)


class RateLimits:
    def __init__(
        self, clock: Clock, overall: RateLimit = OVERALL_LIMIT, reads: RateLimit = READ_LIMIT
    ) -> None:
        self._clock = clock
        self.overall = overall
        self.reads = reads
        self._counts: dict[tuple[str, int, int], int] = {}

    def count(self, is_read: bool = True) -> bool:
        """Count one more request, and say whether it is within the limits."""
        for kind in ("overall", "reads") if is_read else ("overall",):
            for window in self._windows(kind):
                self._counts[window] = self._counts.get(window, 0) + 1
        live = {window for kind in ("overall", "reads") for window in self._windows(kind)}
        self._counts = {window: count for window, count in self._counts.items() if window in live}
        kinds = (("overall", self.overall), ("reads", self.reads))[: 2 if is_read else 1]
        return all(
            self.usage(kind).quarter <= most.quarter and self.usage(kind).day <= most.day
            for kind, most in kinds
        )

    def usage(self, kind: str) -> RateLimit:
        quarter, day = (self._counts.get(window, 0) for window in self._windows(kind))
        return RateLimit(quarter, day)

    def headers(self) -> dict[str, str]:
        told = {}
        for prefix, kind, most in (
            ("X-RateLimit", "overall", self.overall),
            ("X-ReadRateLimit", "reads", self.reads),
        ):
            used = self.usage(kind)
            told[f"{prefix}-Limit"] = f"{most.quarter},{most.day}"
            told[f"{prefix}-Usage"] = f"{used.quarter},{used.day}"
        return told

    def _windows(self, kind: str) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
        now = self._clock.seconds()
        return (kind, QUARTER, now // QUARTER), (kind, DAY, now // DAY)
