"""The firmware of a virtual ESP32 board: measures, buffers readings and delivers them.

    board = VirtualBoard(hardware_id, devices, clock, random.Random(1))
    board.measure()
    await board.deliver()

A reading stays in the buffer until the server acknowledges or rejects it. The board keeps measuring
while the server is unavailable; a full buffer drops and counts the oldest readings.
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
    BoardState,
    DevicesClient,
)
from tally.sim.boards.sensors import SENSOR_NAMES, GreenhouseSensors

MAX_BATCH_SIZE: Final = 100
BUFFER_CAPACITY: Final = 100_000
FIRMWARE_VERSION: Final = "1.0.16"
MIN_INTERVAL: Final = 0.1
MAX_INTERVAL: Final = 86_400
# When the retries are exhausted, the board tries again with its next reading.
BOARD_RETRY_POLICY: Final = RetryPolicy(attempts=8, base=0.5, cap=60, deadline=300)


@dataclass(frozen=True, slots=True)
class BoardClock:
    """The board's clock, with an offset and a drift."""

    clock: Clock
    offset_ms: int = 0
    drift_ppm: float = 0.0
    started: float = 0.0

    @classmethod
    def inaccurate(cls, clock: Clock, rng: random.Random) -> "BoardClock":
        return cls(clock, round(rng.gauss(0, 800)), rng.gauss(0, 40), clock.monotonic())

    def milliseconds(self) -> int:
        drift = (self.clock.monotonic() - self.started) * self.drift_ppm / 1000
        return self.clock.milliseconds() + self.offset_ms + round(drift)


@dataclass(frozen=True, slots=True)
class BufferedReading:
    """A reading in the buffer and the boot it was measured in."""

    boot_id: str
    reading: BoardReading


@dataclass(slots=True)
class VirtualBoard:
    """One board.

    `retry_policy` applies to one request; the fleet delivers again after the next reading.
    Configuration, hardware and firmware state of one board, hence more than eight fields.
    """

    hardware_id: str
    devices: DevicesClient
    clock: Clock
    rng: random.Random
    retry_policy: RetryPolicy = BOARD_RETRY_POLICY
    capacity: int = BUFFER_CAPACITY
    board_clock: BoardClock = field(init=False)
    sensors: GreenhouseSensors = field(init=False)
    buffer: deque[BufferedReading] = field(default_factory=deque)
    boot_id: str = ""
    confirmation_id: str | None = None
    # In flash, like the buffer: the desired state that the board has applied.
    applied: BoardState = field(default_factory=lambda: BoardState(0, {}))
    measured_count: int = 0
    dropped_count: int = 0
    _window_start: int = 0
    _batch_size: int = MAX_BATCH_SIZE

    def __post_init__(self) -> None:
        self.board_clock = BoardClock.inaccurate(self.clock, self.rng)
        self.sensors = GreenhouseSensors.at_random_location(self.rng)
        self.boot()

    def boot(self) -> None:
        """Start or restart with a new boot id and window. The buffer is in flash and survives."""
        self.boot_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        self._window_start = self.board_clock.milliseconds()
        self.confirmation_id = None

    def measure(self, at_ms: int | None = None) -> BoardReading:
        """Close the current window, now or at a time of the board's clock, and buffer a reading."""
        start = self._window_start
        end = max(start + 1, self.board_clock.milliseconds() if at_ms is None else at_ms)
        self._window_start = end
        values, statuses = self.sensors.measure(end)
        reading = BoardReading(
            f"{self.hardware_id}_{self.boot_id}_{start}_{end}", end, values, statuses
        )
        if len(self.buffer) >= self.capacity:
            self.buffer.popleft()
            self.dropped_count += 1
        self.buffer.append(BufferedReading(self.boot_id, reading))
        self.measured_count += 1
        return reading

    def backfill(self, readings: int, interval_ms: int) -> None:
        """Buffer the readings of an offline period of `readings` windows."""
        now = self.board_clock.milliseconds()
        self._window_start = now - readings * interval_ms
        for window in range(readings - 1, -1, -1):
            self.measure(now - window * interval_ms)

    async def register(self) -> None:
        """Register the board, once per boot; raises Unavailable, RateLimited or RequestRejected."""
        features = {"tft_display": self.hardware_id[-1] in "02468ACE", "offline_buffering": True}
        registration = BoardRegistration(
            self.hardware_id,
            self.boot_id,
            FIRMWARE_VERSION,
            BoardCapabilities(SENSOR_NAMES, features),
            self.applied.version,
        )
        confirmation = await self.retry_policy.call(
            lambda: self.devices.register(registration), self.clock, self.rng
        )
        self.confirmation_id = confirmation.confirmation_id
        self._apply(confirmation.desired_state)

    def interval(self, default: float) -> float:
        """Return the seconds between readings: `interval_s` of the desired state, if valid."""
        wanted = self.applied.state.get("interval_s")
        if isinstance(wanted, bool) or not isinstance(wanted, int | float):
            return default
        return wanted if MIN_INTERVAL <= wanted <= MAX_INTERVAL else default

    def _apply(self, desired: BoardState | None) -> None:
        """Apply a desired state; the next request reports its version."""
        if desired is not None:
            self.applied = desired

    async def deliver(self) -> None:
        """Send the buffer, oldest first; raises the same errors as `register`."""
        if self.confirmation_id is None:
            await self.register()
        while self.buffer:
            batch = tuple(islice(self.buffer, self._batch_size))
            try:
                receipt = await self.retry_policy.call(
                    partial(self._send, batch), self.clock, self.rng
                )
            except BatchTooLarge:
                if self._batch_size == 1:
                    raise
                self._batch_size = max(1, self._batch_size // 2)
                continue
            self._remove_delivered(batch, receipt)
            self._apply(receipt.desired_state)

    async def _send(self, batch: Sequence[BufferedReading]) -> BatchReceipt:
        readings = tuple(self._with_boot_id(buffered) for buffered in batch)
        return await self.devices.send(
            BoardBatch(
                self.hardware_id,
                self.boot_id,
                FIRMWARE_VERSION,
                readings,
                self.applied.version,
            )
        )

    def _with_boot_id(self, buffered: BufferedReading) -> BoardReading:
        """Readings of earlier boots carry their boot id."""
        reading = buffered.reading
        if buffered.boot_id == self.boot_id:
            return reading
        return BoardReading(
            reading.batch_id,
            reading.timestamp_ms,
            reading.sensors,
            reading.sensor_status,
            buffered.boot_id,
        )

    def _remove_delivered(self, sent: Sequence[BufferedReading], receipt: BatchReceipt) -> None:
        """Remove acknowledged and rejected readings; others may not have been stored."""
        rejected = {rejection.index for rejection in receipt.rejected}
        stored = receipt.acknowledged_batch_ids | receipt.duplicate_batch_ids
        delivered = {
            buffered.reading.batch_id
            for index, buffered in enumerate(sent)
            if index in rejected or buffered.reading.batch_id in stored
        }
        if not delivered:
            raise Unavailable("The receipt mentions none of the readings sent")
        # They are at the front, except those that a full buffer dropped in the meantime.
        batch_ids = {buffered.reading.batch_id for buffered in sent}
        remaining: list[BufferedReading] = []
        while self.buffer and self.buffer[0].reading.batch_id in batch_ids:
            buffered = self.buffer.popleft()
            if buffered.reading.batch_id not in delivered:
                remaining.append(buffered)
        self.buffer.extendleft(reversed(remaining))
