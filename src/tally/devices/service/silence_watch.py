"""What only rules of silence need: new boards, and when boards could be heard."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.devices.model.alarms import Reachability
from tally.devices.repository.alarm_watch import AlarmWatchRepository
from tally.devices.repository.measurements import MeasurementRepository
from tally.devices.service.alarm_batches import FleetMemory
from tally.kit.clock import Clock, rfc3339

WATCH_SECONDS: Final = 10
# A successor of a crashed instance evaluates sooner; a longer pause is an interruption.
MAX_PAUSE_SECONDS: Final = 30
MIN_GRACE_SECONDS: Final = 60
# The activity of a board is recorded with the clock of its instance, in whole seconds.
CLOCK_TOLERANCE: Final = timedelta(seconds=30)


@dataclass(slots=True)
class SilenceWatch:
    """The watch of one instance, while it evaluates rules."""

    repository: AlarmWatchRepository
    measurements: MeasurementRepository
    clock: Clock
    _watched_ms: int = 0
    # A time, and the end of the change log at that time.
    _mark: tuple[int, str] | None = None

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
        while boards send without a pause. `is_idle` is whether no change arrived: where the store
        cannot compare positions, that counts instead.
        """
        if self._mark is None:
            now = self.clock.milliseconds()
            self._mark = now, await self.measurements.position()
        time, end = self._mark
        is_behind = await self.measurements.has_changes(position, end)
        if is_behind or (is_behind is None and not is_idle):
            return None
        self._mark = None
        return time
