"""Many boards at once: each measures in its own rhythm, loses its network now and then, restarts now and then.

    async with BoardFleet(uplink, clock, random.Random(1), BoardBehaviour(interval=300)).living(10_000) as fleet: ...

Measuring and sending are two tasks of a board, as on the real one: a server that is away stops
neither the other boards nor the measuring of this one.
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
from tally.sim.http_client import RequestRejected, is_cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardBehaviour:
    """How the boards of a fleet live. Times are in seconds, shares are of all windows."""

    interval: float = 300.0
    # How many windows a board has in its buffer when it is switched on.
    backlog: int = 0
    goes_offline: float = 0.01
    offline_windows: tuple[int, int] = (2, 20)
    restarts: float = 0.002
    retry_policy: RetryPolicy = BOARD_RETRY_POLICY
    # How long the boards have to deliver what they hold when the fleet is to stop.
    farewell: float = 5.0


@dataclass(slots=True)
class BoardFleet:
    """The boards, what became of what they sent, and how they live."""

    uplink: DevicesClient
    clock: Clock
    rng: random.Random
    behaviour: BoardBehaviour = field(default_factory=BoardBehaviour)
    boards: list[VirtualBoard] = field(default_factory=list)
    offline: set[str] = field(default_factory=set)
    refused: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def stats(self) -> BoardStats:
        return self.uplink.stats

    @property
    def measured(self) -> int:
        return sum(board.measured for board in self.boards)

    @property
    def buffered(self) -> int:
        return sum(len(board.buffer) for board in self.boards)

    @property
    def lost(self) -> int:
        return sum(board.lost for board in self.boards)

    @property
    def registered(self) -> int:
        return sum(board.confirmation_id is not None for board in self.boards)

    @asynccontextmanager
    async def living(self, count: int) -> AsyncIterator["BoardFleet"]:
        """Switch so many boards on, let them live, and at the end let them deliver what they hold, if that is soon done."""
        self.boards += [self._new_board() for _ in range(count)]
        tasks = [asyncio.create_task(self._live(board)) for board in self.boards]
        try:
            yield self
        finally:
            await cancel_all(tasks)
            await self._say_farewell()
            for task in tasks:
                if not task.cancelled():
                    task.result()

    def _new_board(self) -> VirtualBoard:
        """Locally administered addresses, so that no real board is ever meant."""
        hardware_id = ":".join(f"{byte:02X}" for byte in (0x02, *self.rng.randbytes(5)))
        rng = random.Random(self.rng.getrandbits(64))  # noqa: S311 - weather, not keys
        return VirtualBoard(hardware_id, self.uplink, self.clock, rng, self.behaviour.retry_policy)

    async def _live(self, board: VirtualBoard) -> None:
        work = asyncio.Event()
        board.remember(self.behaviour.backlog, round(self.behaviour.interval * 1000))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._measure(board, work))
                tasks.create_task(self._deliver(board, work))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _measure(self, board: VirtualBoard, work: asyncio.Event) -> None:
        """Boards are not switched on all at once, so their windows do not end all at once either."""
        behaviour, rng = self.behaviour, board.rng
        await self.clock.sleep(rng.uniform(0, behaviour.interval))
        away = 0
        while True:
            if rng.random() < behaviour.restarts:
                board.boot()
            board.measure()
            if away == 0 and rng.random() < behaviour.goes_offline:
                away = rng.randint(*behaviour.offline_windows)
                self.offline.add(board.hardware_id)
            elif away > 0:
                away -= 1
            if away == 0:
                self.offline.discard(board.hardware_id)
                work.set()
            await self.clock.sleep(behaviour.interval)

    async def _deliver(self, board: VirtualBoard, work: asyncio.Event) -> None:
        while not is_cancelled():
            await work.wait()
            work.clear()
            try:
                await board.deliver()
            except (Unavailable, RateLimited):
                # What was not acknowledged is still in the buffer, and goes with the next window.
                continue
            except RequestRejected:
                self.refused.set()

    async def _say_farewell(self) -> None:
        holding = [
            board for board in self.boards if board.buffer and board.hardware_id not in self.offline
        ]
        if self.refused.is_set() or self.uplink.spent.is_set():
            return
        try:
            await finish_within(self.clock, self.behaviour.farewell, _try_all(holding))
        except DeadlineExceeded:
            return


async def _try_all(boards: Sequence[VirtualBoard]) -> None:
    await asyncio.gather(*(_try(board) for board in boards))


async def _try(board: VirtualBoard) -> TallyError | None:
    try:
        await board.deliver()
    except TallyError as trouble:
        return trouble
    return None
