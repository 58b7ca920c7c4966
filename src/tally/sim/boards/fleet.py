"""A fleet of boards that measure at random offsets, go offline and restart.

    async with BoardFleet(devices, clock, random.Random(1)).running(10_000) as fleet: ...

Like the real firmware, a board measures and sends in two tasks: an unavailable server stops neither
its measurements nor the other boards.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tally.errors import RateLimited, TallyError, Unavailable
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.kit.retry import RetryPolicy
from tally.kit.tasks import cancel_all
from tally.sim.boards.board import BOARD_RETRY_POLICY, VirtualBoard
from tally.sim.boards.devices_client import BoardStats, DevicesClient
from tally.sim.http_client import ServerRejection, is_cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardBehaviour:
    """The behaviour of boards. Times are in seconds; probabilities are per window."""

    interval: float = 300.0
    # Readings in the buffer of a board when it starts.
    backlog: int = 0
    offline_probability: float = 0.01
    offline_windows: tuple[int, int] = (2, 20)
    restart_probability: float = 0.002
    retry_policy: RetryPolicy = BOARD_RETRY_POLICY
    # Time to deliver buffered readings at shutdown.
    shutdown_seconds: float = 5.0


@dataclass(slots=True)
class BoardFleet:
    """The boards and their statistics."""

    devices: DevicesClient
    clock: Clock
    rng: random.Random
    behaviour: BoardBehaviour = field(default_factory=BoardBehaviour)
    boards: list[VirtualBoard] = field(default_factory=list)
    offline: set[str] = field(default_factory=set)
    # Set when the server rejects a board.
    rejected: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def stats(self) -> BoardStats:
        return self.devices.stats

    @property
    def measured_count(self) -> int:
        return sum(board.measured_count for board in self.boards)

    @property
    def buffered_count(self) -> int:
        return sum(len(board.buffer) for board in self.boards)

    @property
    def dropped_count(self) -> int:
        return sum(board.dropped_count for board in self.boards)

    @property
    def registered_count(self) -> int:
        return sum(board.confirmation_id is not None for board in self.boards)

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator["BoardFleet"]:
        """Run `count` boards until the block ends, then deliver what they have buffered."""
        self.boards += [self._new_board() for _ in range(count)]
        tasks = [asyncio.create_task(self._run(board)) for board in self.boards]
        try:
            yield self
        finally:
            await cancel_all(tasks)
            await self._deliver_buffers()
            for task in tasks:
                if not task.cancelled():
                    task.result()

    def _new_board(self) -> VirtualBoard:
        """A board with a locally administered address, which no real board has."""
        hardware_id = ":".join(f"{byte:02X}" for byte in (0x02, *self.rng.randbytes(5)))
        rng = random.Random(self.rng.getrandbits(64))  # noqa: S311  sensor data, not keys
        return VirtualBoard(hardware_id, self.devices, self.clock, rng, self.behaviour.retry_policy)

    async def _run(self, board: VirtualBoard) -> None:
        has_readings = asyncio.Event()
        board.backfill(self.behaviour.backlog, round(self.behaviour.interval * 1000))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._measure(board, has_readings))
                tasks.create_task(self._deliver(board, has_readings))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _measure(self, board: VirtualBoard, has_readings: asyncio.Event) -> None:
        """Measure every interval; a random start offset spreads the load."""
        behaviour, rng = self.behaviour, board.rng
        await self.clock.sleep(rng.uniform(0, behaviour.interval))
        offline_windows = 0
        while True:
            if rng.random() < behaviour.restart_probability:
                board.boot()
            board.measure()
            if offline_windows == 0 and rng.random() < behaviour.offline_probability:
                offline_windows = rng.randint(*behaviour.offline_windows)
                self.offline.add(board.hardware_id)
            elif offline_windows > 0:
                offline_windows -= 1
            if offline_windows == 0:
                self.offline.discard(board.hardware_id)
                has_readings.set()
            await self.clock.sleep(board.interval(behaviour.interval))

    async def _deliver(self, board: VirtualBoard, has_readings: asyncio.Event) -> None:
        while not is_cancelled():
            await has_readings.wait()
            has_readings.clear()
            try:
                await board.deliver()
            except (Unavailable, RateLimited):
                # Unacknowledged readings stay in the buffer until the next window.
                continue
            except ServerRejection:
                self.rejected.set()

    async def _deliver_buffers(self) -> None:
        boards = [
            board for board in self.boards if board.buffer and board.hardware_id not in self.offline
        ]
        if self.rejected.is_set() or self.devices.exhausted.is_set():
            return
        try:
            await finish_within(self.clock, self.behaviour.shutdown_seconds, _deliver_all(boards))
        except DeadlineExceeded:
            return


async def _deliver_all(boards: Sequence[VirtualBoard]) -> None:
    await asyncio.gather(*(_try_deliver(board) for board in boards))


async def _try_deliver(board: VirtualBoard) -> TallyError | None:
    try:
        await board.deliver()
    except TallyError as error:
        return error
    return None
