"""How often SportMonks may be asked: so many times an hour for each kind of resource, counted from the first request on."""

from typing import Final

from tally.errors import RateLimited
from tally.kit.clock import Clock

HOUR: Final = 3600.0


class Budget:
    """A count for each resource. It follows SportMonks' own, and is used up when that says so."""

    def __init__(self, clock: Clock, hourly: int) -> None:
        self._clock = clock
        self._hourly = hourly
        # When the count began, and how far it has come.
        self._spent: dict[str, tuple[float, int]] = {}
        self._resting: dict[str, float] = {}

    def take(self, resource: str) -> None:
        """Count a request, or RateLimited with the seconds until there may be another."""
        now = self._clock.monotonic()
        since, count = self._spent.get(resource, (now, 0))
        if now - since >= HOUR:
            since, count = now, 0
        wait = self._resting.get(resource, now) - now
        if count >= self._hourly:
            wait = max(wait, since + HOUR - now)
        if wait > 0:
            raise RateLimited("SportMonks' limit is used up", retry_after=wait)
        self._spent[resource] = since, count + 1

    def rest(self, resource: str, seconds: float) -> None:
        """SportMonks wants to be left alone for so long."""
        self._resting[resource] = self._clock.monotonic() + seconds
