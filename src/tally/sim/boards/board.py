"""A virtual ESP32, as its firmware would be: it measures on its own clock, keeps what was not acknowledged, and tries again.

    board = VirtualBoard(hardware_id, uplink, clock, random.Random(1))
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
from tally.sim.boards.devices_client import (
    BatchReceipt,
    BatchTooLarge,
    BoardBatch,
    BoardCapabilities,
    BoardReading,
    BoardRegistration,
    DevicesClient,
)
from tally.sim.boards.sensors import NAMES, GreenhouseSensors

MAX_BATCH_SIZE: Final = 100
BUFFER_CAPACITY: Final = 100_000
FIRMWARE_VERSION: Final = "1.0.16"
# After this, the board waits for its next window before it tries again.
BOARD_RETRY_POLICY: Final = RetryPolicy(attempts=8, base=0.5, cap=60, deadline=300)


@dataclass(frozen=True, slots=True)
class BoardClock:
    """The board's own clock: off by some milliseconds, and a little too fast or too slow."""

    clock: Clock
    offset_ms: int = 0
    drift_ppm: float = 0.0
    started: float = 0.0

    @classmethod
    def cheap(cls, clock: Clock, rng: random.Random) -> "BoardClock":
        return cls(clock, round(rng.gauss(0, 800)), rng.gauss(0, 40), clock.monotonic())

    def milliseconds(self) -> int:
        drifted = (self.clock.monotonic() - self.started) * self.drift_ppm / 1000
        return self.clock.milliseconds() + self.offset_ms + round(drifted)


@dataclass(frozen=True, slots=True)
class BufferedReading:
    """A reading in the buffer, and the boot in which it was measured."""

    boot_id: str
    reading: BoardReading


@dataclass(slots=True)
class VirtualBoard:
    """One board.

    `patience` is for one delivery; whoever runs the board delivers again at the next window.
    """

    hardware_id: str
    uplink: DevicesClient
    clock: Clock
    rng: random.Random
    retry_policy: RetryPolicy = BOARD_RETRY_POLICY
    capacity: int = BUFFER_CAPACITY
    quartz: BoardClock = field(init=False)
    sensors: GreenhouseSensors = field(init=False)
    buffer: deque[BufferedReading] = field(default_factory=deque)
    boot_id: str = ""
    confirmation_id: str | None = None
    measured: int = 0
    lost: int = 0
    _window_start: int = 0
    _at_once: int = MAX_BATCH_SIZE

    def __post_init__(self) -> None:
        self.quartz = BoardClock.cheap(self.clock, self.rng)
        self.sensors = GreenhouseSensors.somewhere(self.rng)
        self.boot()

    def boot(self) -> None:
        """Start, or start again: a new boot id, and a window that begins now.

        The buffer is in flash and stays.
        """
        self.boot_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        self._window_start = self.quartz.milliseconds()
        self.confirmation_id = None

    def measure(self, at_ms: int | None = None) -> BoardReading:
        """Close the window that is open, now or at a given moment of the board's clock, and buffer what it saw."""
        start = self._window_start
        end = max(start + 1, self.quartz.milliseconds() if at_ms is None else at_ms)
        self._window_start = end
        values, statuses = self.sensors.measure(end)
        reading = BoardReading(
            f"{self.hardware_id}_{self.boot_id}_{start}_{end}", end, values, statuses
        )
        if len(self.buffer) >= self.capacity:
            self.buffer.popleft()
            self.lost += 1
        self.buffer.append(BufferedReading(self.boot_id, reading))
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
        hello = BoardRegistration(
            self.hardware_id, self.boot_id, FIRMWARE_VERSION, BoardCapabilities(NAMES, features)
        )
        confirmed = await self.retry_policy.call(
            lambda: self.uplink.register(hello), self.clock, self.rng
        )
        self.confirmation_id = confirmed.confirmation_id

    async def deliver(self) -> None:
        """Send the buffer, oldest first, until it is empty; the same errors where that does not succeed."""
        if self.confirmation_id is None:
            await self.register()
        while self.buffer:
            waiting = tuple(islice(self.buffer, self._at_once))
            try:
                receipt = await self.retry_policy.call(
                    partial(self._send, waiting), self.clock, self.rng
                )
            except BatchTooLarge:
                if self._at_once == 1:
                    raise
                self._at_once = max(1, self._at_once // 2)
                continue
            self._settle(waiting, receipt)

    async def _send(self, waiting: Sequence[BufferedReading]) -> BatchReceipt:
        readings = tuple(self._dated(each) for each in waiting)
        return await self.uplink.send(
            BoardBatch(self.hardware_id, self.boot_id, FIRMWARE_VERSION, readings)
        )

    def _dated(self, each: BufferedReading) -> BoardReading:
        """A reading of an earlier boot says so."""
        made = each.reading
        if each.boot_id == self.boot_id:
            return made
        return BoardReading(
            made.batch_id, made.timestamp_ms, made.sensors, made.sensor_status, each.boot_id
        )

    def _settle(self, sent: Sequence[BufferedReading], receipt: BatchReceipt) -> None:
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
        kept: list[BufferedReading] = []
        while self.buffer and self.buffer[0].reading.batch_id in mine:
            each = self.buffer.popleft()
            if each.reading.batch_id not in settled:
                kept.append(each)
        self.buffer.extendleft(reversed(kept))
