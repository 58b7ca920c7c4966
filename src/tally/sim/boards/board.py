"""A virtual ESP32, as its firmware would be: it measures on its own clock, keeps what was not acknowledged, and tries again.

    board = Board(hardware_id, uplink, clock, random.Random(1))
    board.measure()
    await board.deliver()

Nothing leaves the buffer before the server has said that it has it, or that it will never take it.
Measuring goes on while the server is away; when the buffer is full, the oldest readings are lost,
and counted.
"""

import random
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.retry import RetryPolicy
from tally.sim.boards.sensors import NAMES, Sensors
from tally.sim.boards.uplink import (
    Capabilities,
    Data,
    Reading,
    Receipt,
    Registration,
    TooMuch,
    Uplink,
)

MAX_AT_ONCE: Final = 100
BUFFER: Final = 100_000
FIRMWARE: Final = "1.0.16"
# After this, the board waits for its next window before it tries again.
PATIENCE: Final = RetryPolicy(attempts=8, base=0.5, cap=60, deadline=300)


@dataclass(frozen=True, slots=True)
class Quartz:
    """The board's own clock: off by some milliseconds, and a little too fast or too slow."""

    clock: Clock
    offset_ms: int = 0
    drift_ppm: float = 0.0
    started: float = 0.0

    @classmethod
    def cheap(cls, clock: Clock, chance: random.Random) -> "Quartz":
        return cls(clock, round(chance.gauss(0, 800)), chance.gauss(0, 40), clock.monotonic())

    def milliseconds(self) -> int:
        drifted = (self.clock.monotonic() - self.started) * self.drift_ppm / 1000
        return self.clock.milliseconds() + self.offset_ms + round(drifted)


@dataclass(frozen=True, slots=True)
class Measured:
    """A reading in the buffer, and the boot in which it was measured."""

    boot_id: str
    reading: Reading


@dataclass(slots=True)
class Board:
    """One board.

    `patience` is for one delivery; whoever runs the board delivers again at the next window.
    """

    hardware_id: str
    uplink: Uplink
    clock: Clock
    chance: random.Random
    patience: RetryPolicy = PATIENCE
    capacity: int = BUFFER
    quartz: Quartz = field(init=False)
    sensors: Sensors = field(init=False)
    buffer: deque[Measured] = field(default_factory=deque)
    boot_id: str = ""
    confirmation_id: str | None = None
    measured: int = 0
    lost: int = 0
    _window_start: int = 0
    _at_once: int = MAX_AT_ONCE

    def __post_init__(self) -> None:
        self.quartz = Quartz.cheap(self.clock, self.chance)
        self.sensors = Sensors.somewhere(self.chance)
        self.boot()

    def boot(self) -> None:
        """Start, or start again: a new boot id, and a window that begins now.

        The buffer is in flash and stays.
        """
        self.boot_id = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        self._window_start = self.quartz.milliseconds()
        self.confirmation_id = None

    def measure(self, at_ms: int | None = None) -> Reading:
        """Close the window that is open, now or at a given moment of the board's clock, and buffer what it saw."""
        start = self._window_start
        end = max(start + 1, self.quartz.milliseconds() if at_ms is None else at_ms)
        self._window_start = end
        values, statuses = self.sensors.measure(end)
        reading = Reading(f"{self.hardware_id}_{self.boot_id}_{start}_{end}", end, values, statuses)
        if len(self.buffer) >= self.capacity:
            self.buffer.popleft()
            self.lost += 1
        self.buffer.append(Measured(self.boot_id, reading))
        self.measured += 1
        return reading

    def remember(self, readings: int, interval_ms: int) -> None:
        """Measure what would have been measured so far, had the board been offline for so many windows."""
        now = self.quartz.milliseconds()
        self._window_start = now - readings * interval_ms
        for window in range(readings - 1, -1, -1):
            self.measure(now - window * interval_ms)

    async def register(self) -> None:
        """Say hello, once in every boot; Unavailable, RateLimited or Refused where that does not succeed."""
        features = {"tft_display": self.hardware_id[-1] in "02468ACE", "offline_buffering": True}
        hello = Registration(
            self.hardware_id, self.boot_id, FIRMWARE, Capabilities(NAMES, features)
        )
        confirmed = await self.patience.call(
            lambda: self.uplink.register(hello), self.clock, self.chance
        )
        self.confirmation_id = confirmed.confirmation_id

    async def deliver(self) -> None:
        """Send the buffer, oldest first, until it is empty; the same errors where that does not succeed."""
        if self.confirmation_id is None:
            await self.register()
        while self.buffer:
            waiting = tuple(islice(self.buffer, self._at_once))
            try:
                receipt = await self.patience.call(
                    partial(self._send, waiting), self.clock, self.chance
                )
            except TooMuch:
                if self._at_once == 1:
                    raise
                self._at_once = max(1, self._at_once // 2)
                continue
            self._settle(waiting, receipt)

    async def _send(self, waiting: Sequence[Measured]) -> Receipt:
        readings = tuple(self._dated(each) for each in waiting)
        return await self.uplink.send(Data(self.hardware_id, self.boot_id, FIRMWARE, readings))

    def _dated(self, each: Measured) -> Reading:
        """A reading of an earlier boot says so."""
        made = each.reading
        if each.boot_id == self.boot_id:
            return made
        return Reading(
            made.batch_id, made.timestamp_ms, made.sensors, made.sensor_status, each.boot_id
        )

    def _settle(self, sent: Sequence[Measured], receipt: Receipt) -> None:
        """Keep what the receipt does not speak of: the server may not have it."""
        rejected = {rejection.index for rejection in receipt.rejected}
        has = receipt.acknowledged_batch_ids | receipt.duplicate_batch_ids
        settled = {
            each.reading.batch_id
            for index, each in enumerate(sent)
            if index in rejected or each.reading.batch_id in has
        }
        if not settled:
            raise Unavailable("The receipt speaks of none of the readings that were sent")
        # They still stand in front, but for those that a full buffer has lost in the meantime.
        mine = {each.reading.batch_id for each in sent}
        kept: list[Measured] = []
        while self.buffer and self.buffer[0].reading.batch_id in mine:
            each = self.buffer.popleft()
            if each.reading.batch_id not in settled:
                kept.append(each)
        self.buffer.extendleft(reversed(kept))
