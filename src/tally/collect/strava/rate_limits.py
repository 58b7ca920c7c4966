"""Strava's rate limits, as its responses report them."""

from collections.abc import Mapping
from typing import Final

from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse

QUARTER_HOUR_SECONDS: Final = 15 * 60
DAY_SECONDS: Final = 86_400
# The share of a read limit after which a sync pauses.
SYNC_SHARE: Final = 0.5


class ReadBudget:
    """The usage that Strava last reported."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported_at = 0
        self._usages: list[tuple[tuple[int, int], tuple[int, int]]] = []

    def update(self, headers: Mapping[str, str]) -> None:
        """Take the usage from the headers of a response, if it has any."""
        pairs = [
            (
                _parse_pair(headers, f"{family}-usage"),
                _parse_pair(headers, f"{family}-limit"),
            )
            for family in ("x-ratelimit", "x-readratelimit")
        ]
        usages = [(used, limit) for used, limit in pairs if used is not None and limit is not None]
        if usages:
            self._reported_at, self._usages = self._clock.seconds(), usages

    def sync_delay(self) -> float:
        """Return the seconds until a sync may read; 0 if it may read now."""
        now, delay = self._clock.seconds(), 0
        for index, window in enumerate((QUARTER_HOUR_SECONDS, DAY_SECONDS)):
            is_current = self._reported_at // window == now // window
            is_spent = any(used[index] >= limit[index] * SYNC_SHARE for used, limit in self._usages)
            if is_current and is_spent:
                delay = max(delay, window - now % window)
        return float(delay)


def rate_limit_delay(response: HttpResponse, now: int) -> float:
    """Return the seconds until the next read is allowed.

    Taken from Retry-After or from the limit that is exhausted; 0 if none is.
    """
    retry_after = response.headers.get("retry-after", "")
    if response.status == 429 and retry_after.isascii() and retry_after.isdigit():
        return float(min(int(retry_after), DAY_SECONDS))
    to_quarter_hour = QUARTER_HOUR_SECONDS - now % QUARTER_HOUR_SECONDS
    to_day = DAY_SECONDS - now % DAY_SECONDS
    delay = to_quarter_hour if response.status == 429 else 0
    for family in ("x-ratelimit", "x-readratelimit"):
        limits = _parse_pair(response.headers, f"{family}-limit")
        usages = _parse_pair(response.headers, f"{family}-usage")
        if limits and usages:
            delay = max(
                delay,
                to_quarter_hour if usages[0] >= limits[0] else 0,
                to_day if usages[1] >= limits[1] else 0,
            )
    return float(delay)


def _parse_pair(headers: Mapping[str, str], name: str) -> tuple[int, int] | None:
    numbers = [part.strip() for part in headers.get(name, "").split(",")]
    if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])
