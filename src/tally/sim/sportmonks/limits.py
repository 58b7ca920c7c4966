"""How often one may ask: so many times an hour for each kind of resource, counted from the first request on."""

import math
from typing import Final

from tally.kit.clock import Clock

HOUR: Final = 3600
USUAL: Final = 2000


class HourlyLimits:
    """A count for each resource, which starts again an hour after its first request."""

    def __init__(self, clock: Clock, hourly: int = USUAL) -> None:
        self._clock = clock
        self.hourly = hourly
        self._counts: dict[str, tuple[float, int]] = {}

    def count(self, resource: str) -> int:
        """Count one more request; the seconds to wait if it is beyond the limit, else 0."""
        now = self._clock.monotonic()
        since, count = self._counts.get(resource, (now, 0))
        if now - since >= HOUR:
            since, count = now, 0
        self._counts[resource] = since, count + 1
        return 0 if count < self.hourly else max(1, math.ceil(since + HOUR - now))

    def forget(self) -> None:
        """Start all counts again."""
        self._counts.clear()

    def headers(self, resource: str) -> dict[str, str]:
        _, count = self._counts.get(resource, (0.0, 0))
        return {
            "X-RateLimit-Limit": str(self.hourly),
            "X-RateLimit-Remaining": str(max(0, self.hourly - count)),
        }
