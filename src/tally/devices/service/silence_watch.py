"""What only rules of silence need: new boards, and when boards could be heard."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from tally.devices.model.alarms import Reachability
from tally.devices.repository.alarm_watch import AlarmWatchRepository
from tally.devices.repository.measurements import STREAM_DELAY_SECONDS, MeasurementRepository
from tally.devices.service.alarm_batches import FleetMemory
from tally.kit.clock import Clock, rfc3339

WATCH_SECONDS: Final = 10
# A successor of a crashed instance evaluates sooner; a longer pause is an interruption.
MAX_PAUSE_SECONDS: Final = 30
MIN_GRACE_SECONDS: Final = 60
# The activity of a board is recorded with the clock of its instance, in whole seconds.
CLOCK_TOLERANCE: Final = timedelta(seconds=30)


class _LogMark(NamedTuple):
    """The end of the change log at a time, by both clocks."""

    time_ms: int
    system_time: float
    end: str


@dataclass(slots=True)
class SilenceWatch:
    """The watch of one instance, while it evaluates rules."""

    repository: AlarmWatchRepository
    measurements: MeasurementRepository
    clock: Clock
    # The time of the store.
    system_clock: Clock
    # When the change was made that was evaluated last, in epoch seconds.
    evaluated_at: float = 0.0
    _watched_ms: int = 0
    _mark: _LogMark | None = None

    async def resume(self) -> Reachability:
        """Return how long boards have to send again after an interruption, at the start."""
        now = self.clock.milliseconds()
        evaluated = await self.repository.evaluated_ms()
        self._watched_ms = now
        if evaluated is None or now - evaluated <= MAX_PAUSE_SECONDS * 1000:
            return Reachability()
        return Reachability(0, now, max(now - evaluated, MIN_GRACE_SECONDS * 1000))

    async def find_new_boards(self, fleet: FleetMemory) -> list[str]:
        """Return boards that were registered since the last call, at most every 10 s.

        Also record that the rules are evaluated.
        """
        now = self.clock.milliseconds()
        if not fleet.has_silence_rules or now - self._watched_ms < WATCH_SECONDS * 1000:
            return []
        await self.repository.record_evaluation(now)
        passed = timedelta(milliseconds=now - self._watched_ms)
        since = rfc3339(self.clock.now() - passed - CLOCK_TOLERANCE)
        found = self.repository.seen_since(since)
        new = [hardware_id async for hardware_id in found if hardware_id not in fleet.groups]
        self._watched_ms = now
        return new

    async def heard_until(self, position: str, *, is_idle: bool) -> int | None:
        """Return a time up to which every reading was evaluated, or None if some are waiting.

        The end of the log is marked from time to time, and the evaluation reaches the mark also
        while boards send without a pause. Where the store cannot compare positions, changes were
        read that are later than the mark, or none has arrived: `is_idle`.
        """
        mark = self._mark = self._mark or _LogMark(
            self.clock.milliseconds(),
            self.system_clock.time_ns() / 1e9,
            await self.measurements.position(),
        )
        is_behind = await self.measurements.has_changes(position, mark.end)
        if is_behind is None:
            is_later = self.evaluated_at >= mark.system_time + STREAM_DELAY_SECONDS
            is_behind = not (is_idle or is_later)
        if is_behind:
            return None
        self._mark = None
        return mark.time_ms
