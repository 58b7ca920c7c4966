"""Runs long computations on the event loop in short turns, so that requests never wait long.

    async with slices as deadline:
        while work and monotonic() < deadline:
            work.pop().run()

One turn runs at a time, and turns are granted in the order of their requests. Between two turns the
event loop polls for I/O and runs every callback that is ready. So the delay of a request depends on
the length of a turn, not on the number of computations.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
SLICE_SECONDS: Final = 0.001


async def map_in_turns(function: Callable[[T], R], values: Iterable[T]) -> list[R]:
    """Return the results of a function; other tasks run between its turns."""
    results = []
    deadline = time.monotonic() + SLICE_SECONDS
    for value in values:
        results.append(function(value))
        if time.monotonic() > deadline:
            await asyncio.sleep(0)
            deadline = time.monotonic() + SLICE_SECONDS
    return results


class TimeSlices:
    """Grants turns on one event loop; entering it returns the time at which the turn must end."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, seconds: float = SLICE_SECONDS
    ) -> None:
        self.monotonic = monotonic
        self._seconds = seconds
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> float:
        if self._is_taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was granted before the cancellation arrived
                    self._end_turn()
                raise
        self._is_taken = True
        return self.monotonic() + self._seconds

    async def __aexit__(self, *_: object) -> None:
        self._end_turn()

    async def wait(self) -> None:
        """Wait for a turn, for work that follows without an await and takes about a turn."""
        async with self:
            pass

    def _end_turn(self) -> None:
        asyncio.get_running_loop().call_soon(self._grant_next)

    def _grant_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._is_taken = False
