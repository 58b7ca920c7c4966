"""The lanes that pushes take: a few connections to Apple, each with many pushes under way, as many as Apple bears.

A lane starts with some and takes more while answers are good. At trouble (429, 500, 503, a broken
connection, no answer) it halves what it carries and rests a moment, longer each time in a row; the
others go on meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pyreqwest.client import Client

from tally.kit.clock import Clock
from tally.kit.retry import full_jitter

FIRST: Final = 100
MOST: Final = 400
LEAST: Final = 4
# So many requests in a row without an answer: the connection is dead, whatever the system thinks of
# it.
_MAX_UNANSWERED: Final = 3


class Lane:
    """One connection. What it holds is changed by `Lanes` alone."""

    __slots__ = (
        "begun",
        "client",
        "is_starting",
        "limit",
        "rests",
        "slowed_at",
        "troubles",
        "unanswered",
        "under_way",
    )

    def __init__(self, client: Client) -> None:
        self.client = client
        self.limit = float(FIRST)
        self.under_way = 0
        # How many requests it has had; and how many when it was last slowed down.
        self.begun = 0
        self.slowed_at = 0
        # How many rests are not over yet.
        self.rests = 0
        self.troubles = 0
        self.unanswered = 0
        self.is_starting = True


class Lanes:
    """The connections to one host, and who is next."""

    def __init__(
        self,
        connect: Callable[[], Client],
        count: int,
        clock: Clock,
        *,
        rest: float,
        longest_rest: float,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._rest = rest
        self._longest_rest = longest_rest
        self.lanes: Sequence[Lane] = [Lane(connect()) for _ in range(count)]
        self._queue: deque[asyncio.Future[Lane]] = deque()
        self._alarms: set[asyncio.Task[None]] = set()
        self._retired: list[Client] = []

    @property
    def most(self) -> int:
        """How many pushes could be under way at best."""
        return MOST * len(self.lanes)

    @property
    def under_way(self) -> int:
        return sum(lane.under_way for lane in self.lanes)

    def enter(self) -> Lane | None:
        """A place on the emptiest lane, or None if there is none now.

        Whoever gets one has to `leave` it.
        """
        best, room = None, 1.0
        for lane in self.lanes:
            free = lane.limit - lane.under_way
            if free >= room and not lane.rests:
                best, room = lane, free
        if best is not None:
            best.under_way += 1
            best.begun += 1
        return best

    async def enter_later(self) -> Lane:
        """A place, as soon as there is one; first come, first served."""
        waiting: asyncio.Future[Lane] = asyncio.get_running_loop().create_future()
        self._queue.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self.leave(waiting.result())
            raise

    def leave(self, lane: Lane) -> None:
        lane.under_way -= 1
        if self._queue:
            self._call_next()

    def went_well(self, lane: Lane) -> None:
        """An answer came that says nothing against the connection."""
        lane.troubles = lane.unanswered = 0
        if lane.limit < MOST:
            lane.limit += 1.0 if lane.is_starting else 1.0 / lane.limit

    def slow_down(self, lane: Lane, number: int, wait: float, *, is_answered: bool) -> None:
        """Trouble with the lane's request of this `number`; `wait` is what the other side asked for, if it did."""
        if not is_answered:
            self._unanswered(lane)
        if number <= lane.slowed_at:
            return  # of the same burst: many are under way when trouble comes, and it counts once
        lane.is_starting = False
        lane.limit = max(float(LEAST), lane.limit / 2)
        lane.troubles += 1
        lane.slowed_at = lane.begun
        rest = max(
            full_jitter(lane.troubles, self._rest, self._longest_rest),
            min(wait, self._longest_rest),
        )
        alarm = asyncio.create_task(self._take_rest(lane, rest))
        lane.rests += 1
        self._alarms.add(alarm)
        alarm.add_done_callback(self._alarms.discard)

    async def close(self) -> None:
        for alarm in tuple(self._alarms):
            alarm.cancel()
        for client in (*self._retired, *(lane.client for lane in self.lanes)):
            await client.close()

    def _unanswered(self, lane: Lane) -> None:
        lane.unanswered += 1
        if lane.unanswered == _MAX_UNANSWERED:
            lane.unanswered = 0
            # Not closed yet: others on it may still get their answers.
            self._retired = [*self._retired[-len(self.lanes) :], lane.client]
            lane.client = self._connect()

    def _call_next(self) -> None:
        """Whoever is called has the place already: between the call and the waking nobody can take it."""
        while self._queue:
            if self._queue[0].done():
                del self._queue[0]
                continue
            lane = self.enter()
            if lane is None:
                return
            self._queue.popleft().set_result(lane)

    async def _take_rest(self, lane: Lane, seconds: float) -> None:
        await self._clock.sleep(seconds)
        lane.rests -= 1
        self._call_next()
