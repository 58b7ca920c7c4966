"""The request budget: all instances share SportMonks' hourly quota of each resource.

SportMonks counts the requests per resource for an hour from the first one. The windows are stored,
and an instance reserves several requests with one write. `x-ratelimit-remaining` of a response
corrects the count when others use the same API token. `interval` spreads the remaining requests
over the rest of the hour, so that polling slows down near the limit instead of stopping.
"""

from dataclasses import dataclass, replace
from typing import Final, Protocol

from tally.cricket.model.records import QuotaWindow
from tally.errors import RateLimited, Unavailable
from tally.kit.clock import Clock

# An hour, and some seconds because SportMonks' hour begins when the first request arrives.
WINDOW_MS: Final = 3_605_000
# An instance that crashes loses at most this many reserved requests.
MAX_RESERVED: Final = 10
MAX_RESERVED_SHARE: Final = 20
MAX_ATTEMPTS: Final = 50
# The share of the remaining requests that `interval` plans for; the rest is for retries.
PLANNED_SHARE: Final = 0.95
EXHAUSTED_INTERVAL_SECONDS: Final = 60.0
# Polling slows down to this, however few requests remain: others may start a new hour earlier.
MAX_INTERVAL_SECONDS: Final = 300.0


class QuotaWindows(Protocol):
    """The stored windows of all instances."""

    async def get(self, resource: str) -> QuotaWindow | None: ...

    async def replace(self, resource: str, before: QuotaWindow | None, after: QuotaWindow) -> bool:
        """Store a window; return False if the stored one is not `before`."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The window as this instance knows it, and the requests that it reserved and has not sent.

    `reported` is the number that SportMonks reported last, `has_reset` whether it has started a new
    hour since the reservation.
    """

    window: QuotaWindow
    left: int
    reported: int | None = None
    has_reset: bool = False

    @property
    def remaining(self) -> int:
        own = self.window.remaining + self.left
        return own if self.reported is None else min(own, self.reported)


class RequestBudget:
    """The requests that this instance may send."""

    def __init__(self, windows: QuotaWindows, clock: Clock, hourly: int) -> None:
        self._windows = windows
        self._clock = clock
        self._hourly = hourly
        self._reservations: dict[str, Reservation] = {}

    async def consume(self, resource: str) -> None:
        """Count a request, or raise RateLimited with the seconds until the next one is allowed."""
        reserved = self._reservations.get(resource)
        if reserved is None or not reserved.left or self._has_passed(reserved.window):
            reserved = await self._reserve(resource)
        self._reservations[resource] = replace(reserved, left=reserved.left - 1)

    def report(self, resource: str, remaining: int) -> None:
        """Record the remaining requests of a response."""
        reserved = self._reservations.get(resource)
        if reserved is None:
            return
        if reserved.reported is not None and remaining > reserved.reported + MAX_RESERVED:
            window = QuotaWindow(
                min(remaining, self._hourly), self._clock.milliseconds() + WINDOW_MS
            )
            reserved = Reservation(window, 0, has_reset=True)
        self._reservations[resource] = replace(reserved, reported=remaining)

    async def pause(self, resource: str, seconds: float) -> None:
        """Allow no request of any instance for some seconds, as a 429 response demands."""
        window = QuotaWindow(0, self._clock.milliseconds() + round(seconds * 1000))
        for _ in range(MAX_ATTEMPTS):
            if await self._windows.replace(resource, await self._windows.get(resource), window):
                break
        self._reservations[resource] = Reservation(window, 0)

    def interval(self, resource: str) -> float:
        """Return the seconds between requests that spread the remaining ones over the hour."""
        reserved = self._reservations.get(resource)
        if reserved is None or self._has_passed(reserved.window):
            return 0.0
        if not reserved.remaining:
            return EXHAUSTED_INTERVAL_SECONDS
        seconds = (reserved.window.resets_at - self._clock.milliseconds()) / 1000
        return min(seconds / (reserved.remaining * PLANNED_SHARE), MAX_INTERVAL_SECONDS)

    async def _reserve(self, resource: str) -> Reservation:
        """Reserve requests in the store, with one read and one write."""
        for _ in range(MAX_ATTEMPTS):
            stored, known = await self._windows.get(resource), self._reservations.get(resource)
            window = self._current_window(stored, known)
            if not window.remaining:
                wait = (window.resets_at - self._clock.milliseconds()) / 1000
                raise RateLimited("The SportMonks request quota is exhausted", retry_after=wait)
            count = min(MAX_RESERVED, max(1, window.remaining // MAX_RESERVED_SHARE))
            rest = replace(window, remaining=window.remaining - count)
            if await self._windows.replace(resource, stored, rest):
                is_same = known is not None and known.window.resets_at == rest.resets_at
                return Reservation(rest, count, known.reported if known and is_same else None)
        raise Unavailable(f"The request budget changed during {MAX_ATTEMPTS} attempts to use it")

    def _current_window(self, stored: QuotaWindow | None, known: Reservation | None) -> QuotaWindow:
        if known is not None and known.has_reset and not self._has_passed(known.window):
            return replace(known.window, remaining=known.remaining)
        if stored is None or self._has_passed(stored):
            return QuotaWindow(self._hourly, self._clock.milliseconds() + WINDOW_MS)
        if known is None or not known.reported:
            # A report of 0 does not say until when; the 429 response to the next request does.
            return stored
        return replace(stored, remaining=min(stored.remaining, known.reported))

    def _has_passed(self, window: QuotaWindow) -> bool:
        """Whether a window has ended, or cannot be right: written by a clock hours ahead."""
        milliseconds = window.resets_at - self._clock.milliseconds()
        return milliseconds <= 0 or milliseconds > 2 * WINDOW_MS
