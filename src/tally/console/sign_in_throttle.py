"""Limits sign-ins to the console, and reports failed ones in the log and in a metric."""

from typing import Final

from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.kit.rate_limiter import RateLimiter

# Ten attempts at once from one address, then one every ten seconds.
ADDRESS_BURST: Final = 10
ADDRESS_RATE: Final = 0.1
# All addresses together. A token cannot be guessed; this bounds the work that a botnet causes.
TOTAL_BURST: Final = 200
TOTAL_RATE: Final = 10.0
MAX_ADDRESSES: Final = 10_000
LOG_SECONDS: Final = 60.0

_log = logs.logger()


class SignInThrottle:
    """Counts attempts in the memory of this instance."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._by_address = RateLimiter(clock, ADDRESS_RATE, ADDRESS_BURST, MAX_ADDRESSES)
        self._total = RateLimiter(clock, TOTAL_RATE, TOTAL_BURST)
        self._failures = 0
        self._next_log_at = clock.monotonic()

    def take(self, address: str) -> None:
        """Count an attempt, or raise RateLimited.

        Attempts over the limit of their address do not count towards the total.
        """
        self._by_address.take(address)
        self._total.take("total")

    def record_failure(self, address: str, reason: str) -> None:
        """Count a failed sign-in; the log has one entry per minute with their number."""
        self._metrics.failed_sign_ins.labels("console", reason).inc()
        self._failures += 1
        if self._clock.monotonic() < self._next_log_at:
            return
        _log.warning(
            "Console sign-in failed",
            action="console_sign_in_failed",
            reason=reason,
            address=address,
            failures=self._failures,
        )
        self._failures = 0
        self._next_log_at = self._clock.monotonic() + LOG_SECONDS
