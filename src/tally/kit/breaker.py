"""A circuit breaker: stops calls to a failing service and probes for its recovery.

While closed, calls pass; after `failures` consecutive failures the breaker opens. While open,
calls fail immediately with `Unavailable`, so that no caller waits for a time-out. After
`open_seconds` the breaker is half-open: one call passes as a probe and others are still rejected.
The probe's success closes the breaker; its failure opens it again.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeVar

from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics

T = TypeVar("T")

_log = logs.logger()


class BreakerState(Enum):
    """The states; the values are those of the metric."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Guards the calls to one external service."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        metrics: Metrics,
        *,
        failures: int = 5,
        open_seconds: float = 30,
        is_failure: Callable[[Exception], bool] = lambda _: True,
    ) -> None:
        self.name = name
        self.state = BreakerState.CLOSED
        self._clock = clock
        self._state_metric = metrics.breaker_state.labels(name)
        # Label lookups are cached: a request makes several calls.
        self._succeeded, self._failed, self._rejected = (
            metrics.breaker_calls.labels(name, outcome)
            for outcome in ("succeeded", "failed", "rejected")
        )
        self._failure_threshold = failures
        self._open_seconds = open_seconds
        self._is_failure = is_failure
        self._consecutive_failures = 0
        self._opened_at = 0.0
        self._is_probing = False
        self._export_state()

    async def call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `operation`, or raise Unavailable without calling it.

        An exception that `is_failure` does not accept counts as a success.
        """
        is_probe = self._admit()
        try:
            result = await operation()
        except Exception as error:
            self._record(has_failed=self._is_failure(error), is_probe=is_probe)
            raise
        except BaseException:
            # A cancelled probe proves nothing: the next call becomes the probe.
            self._is_probing = self._is_probing and not is_probe
            raise
        self._record(has_failed=False, is_probe=is_probe)
        return result

    def _admit(self) -> bool:
        """Admit a call or raise Unavailable; return whether the call is the probe."""
        wait = self._opened_at + self._open_seconds - self._clock.monotonic()
        if self.state is BreakerState.OPEN and wait <= 0:
            self._transition(BreakerState.HALF_OPEN)
        if self.state is BreakerState.CLOSED:
            return False
        if self.state is BreakerState.OPEN or self._is_probing:
            self._rejected.inc()
            raise Unavailable(
                f"{self.name} is unavailable: its circuit breaker is open",
                retry_after=max(wait, 1.0),
            )
        self._is_probing = True
        return True

    def _record(self, *, has_failed: bool, is_probe: bool) -> None:
        (self._failed if has_failed else self._succeeded).inc()
        if is_probe:
            self._is_probing = False
        elif self.state is not BreakerState.CLOSED:
            return  # the call began before the breaker opened, so its outcome is out of date
        self._consecutive_failures = self._consecutive_failures + 1 if has_failed else 0
        if has_failed and (is_probe or self._consecutive_failures >= self._failure_threshold):
            self._opened_at = self._clock.monotonic()
            self._transition(BreakerState.OPEN)
        elif is_probe:
            self._transition(BreakerState.CLOSED)

    def _transition(self, state: BreakerState) -> None:
        # Not the probes of a long outage, which change the state every few seconds.
        if state is BreakerState.CLOSED:
            _log.info("Circuit breaker closed", action="breaker_closed", breaker=self.name)
        elif self.state is BreakerState.CLOSED:
            _log.warning("Circuit breaker opened", action="breaker_opened", breaker=self.name)
        self.state = state
        self._export_state()

    def _export_state(self) -> None:
        self._state_metric.set(self.state.value)
