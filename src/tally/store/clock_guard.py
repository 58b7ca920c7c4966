"""Protects items from a clock that jumps ahead: the sweeper would delete what is not yet due.

Three times are compared: the wall clock, the monotonic clock, which does not jump, and the newest
commit, the latest wall-clock time that was plausible, which survives a restart.
"""

import logging
import time
from datetime import UTC, datetime
from typing import Final, Protocol

from tally.kit.clock import Clock, SystemClock

NEWEST_COMMIT: Final = "newest_commit"
MAX_JUMP_SECONDS: Final = 3_600.0
# After a restart, nothing else says how long the program was stopped: a long weekend is plausible.
MAX_DOWNTIME_SECONDS: Final = 3 * 86_400.0

_log = logging.getLogger(__name__)


class StoreState(Protocol):
    """Where the newest commit is stored; the embedded engine."""

    async def read_state(self, name: str) -> str | None: ...
    async def write_state(self, name: str, value: str) -> None: ...


class ClockGuard:
    """Decides whether the wall clock is plausible enough to delete expired items.

    `problem` says why not; it is None while the clocks agree.
    """

    def __init__(self, clock: Clock, state: StoreState) -> None:
        self._clock = clock
        self._state = state
        self._anchor: tuple[float, float] | None = None  # wall clock and elapsed time
        self.problem: str | None = None

    async def is_plausible(self) -> bool:
        """Compare the clocks; log when they begin to disagree and when they agree again."""
        now, elapsed = self._clock.time_ns() / 1e9, _elapsed_seconds(self._clock)
        stored = await self._state.read_state(NEWEST_COMMIT)
        newest = now if stored is None else float(stored)
        if self._anchor is None:
            latest = newest + MAX_DOWNTIME_SECONDS
        else:
            expected = self._anchor[0] + elapsed - self._anchor[1]
            latest = max(expected, newest) + MAX_JUMP_SECONDS
        if now > latest:
            self._report(now, newest)
            return False
        self._anchor = now, elapsed
        await self._state.write_state(NEWEST_COMMIT, repr(max(now, newest)))
        if self.problem is not None:
            self.problem = None
            _log.info("Sweeper resumed", extra={"fields": {"action": "sweep_resumed"}})
        return True

    def _report(self, now: float, newest: float) -> None:
        is_new = self.problem is None
        self.problem = (
            f"The clock says {_format(now)}, and the newest commit is from {_format(newest)}:"
            " expired items are not deleted. Correct the clock, or, if it is right, run"
            " `tally store confirm-clock`"
        )
        if is_new:
            _log.warning(
                "Sweeper paused: the clock jumped ahead",
                extra={"fields": {"action": "sweep_paused", "reason": self.problem}},
            )


async def confirm_clock(clock: Clock, state: StoreState) -> None:
    """Accept the wall clock as right: running sweepers resume."""
    await state.write_state(NEWEST_COMMIT, repr(clock.time_ns() / 1e9))


def _elapsed_seconds(clock: Clock) -> float:
    """Return a monotonic time that includes the sleep of a suspended machine, if possible."""
    if isinstance(clock, SystemClock) and hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return clock.monotonic()


def _format(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
