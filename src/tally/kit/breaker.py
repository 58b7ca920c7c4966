"""A circuit breaker: stops calling what is down, and finds out gently when it is back.

Closed, calls go through; after `failures` in a row it opens. Open, calls are refused at once with
`Unavailable`, so that a dead service costs nobody a time-out. After `open_seconds` it is half-open:
one call goes through as a probe while others are still refused; if it succeeds the breaker closes,
if it fails it is open again.
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


class State(Enum):
    """The value is what the metric shows."""

    CLOSED = 0
    HALF_OPEN = 1
    OPEN = 2


class Breaker:
    """Guards the calls to one outside system."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        metrics: Metrics,
        *,
        failures: int = 5,
        open_seconds: float = 30,
        counts: Callable[[Exception], bool] = lambda _: True,
    ) -> None:
        self.name = name
        self.state = State.CLOSED
        self._clock = clock
        self._metrics = metrics
        self._limit = failures
        self._open_seconds = open_seconds
        self._counts = counts
        self._failed_in_a_row = 0
        self._opened_at = 0.0
        self._is_probing = False
        self._show()

    async def call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """The result of `operation`, or Unavailable without a call.

        Errors that do not count are successes here.
        """
        is_probe = self._admit()
        try:
            result = await operation()
        except Exception as error:
            self._note(failed=self._counts(error), is_probe=is_probe)
            raise
        except BaseException:
            self._is_probing = (
                self._is_probing and not is_probe
            )  # cancelled: it proved nothing, the next call may
            raise
        self._note(failed=False, is_probe=is_probe)
        return result

    def _admit(self) -> bool:
        """Let a call through, or raise; true if the call is the probe."""
        wait = self._opened_at + self._open_seconds - self._clock.monotonic()
        if self.state is State.OPEN and wait <= 0:
            self._become(State.HALF_OPEN)
        if self.state is State.CLOSED:
            return False
        if self.state is State.OPEN or self._is_probing:
            self._metrics.breaker_calls.labels(self.name, "refused").inc()
            raise Unavailable(
                f"{self.name} is not called while it is failing", retry_after=max(wait, 1.0)
            )
        self._is_probing = True
        return True

    def _note(self, *, failed: bool, is_probe: bool) -> None:
        self._metrics.breaker_calls.labels(self.name, "failed" if failed else "succeeded").inc()
        if is_probe:
            self._is_probing = False
        elif self.state is not State.CLOSED:
            return  # it began before the breaker opened, and its news is old
        self._failed_in_a_row = self._failed_in_a_row + 1 if failed else 0
        if failed and (is_probe or self._failed_in_a_row >= self._limit):
            self._opened_at = self._clock.monotonic()
            self._become(State.OPEN)
        elif is_probe:
            self._become(State.CLOSED)

    def _become(self, state: State) -> None:
        _log.warning(
            "Breaker changed",
            action="breaker",
            breaker=self.name,
            was=self.state.name,
            now=state.name,
        )
        self.state = state
        self._show()

    def _show(self) -> None:
        self._metrics.breaker_state.labels(self.name).set(self.state.value)
