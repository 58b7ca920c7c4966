"""Many pushes at once: a stream of pushes in, a stream of verdicts out, and no more in memory than twice what is under way.

A feeder reads the pushes, workers send them, and whoever asked reads the verdicts. Between them lie
two short rows; events are for the moments when one side has to wait for another, which at full
speed is seldom.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeAlias

from tally.cricket.apns.model import Push, Verdict

Send: TypeAlias = Callable[[Push], Awaitable[Verdict]]


class Flow:
    """One stream, with as many workers as are needed, up to `limit`."""

    def __init__(self, send: Send, limit: int) -> None:
        self._send = send
        self._limit = limit
        self._pushes: deque[Push] = deque()
        self._results: deque[tuple[Push, Verdict]] = deque()
        # Set: less than `limit` pushes wait to be sent; there are verdicts to read; less than
        # `limit` are unread.
        self._room, self._to_read, self._taken = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._is_fed = False
        self._trouble: BaseException | None = None

    async def run(self, pushes: AsyncIterable[Push]) -> AsyncGenerator[tuple[Push, Verdict], None]:
        feeder = asyncio.create_task(self._feed(pushes), name="apns feeder")
        try:
            while self._results or not self._is_over():
                while self._results:
                    yield self._results.popleft()
                self._taken.set()
                if not self._is_over():
                    self._to_read.clear()
                    await self._to_read.wait()
            if self._trouble is not None:
                raise self._trouble
        finally:
            tasks = {feeder, *self._workers}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _is_over(self) -> bool:
        """Everything is sent, or a worker has failed while there was more to come."""
        return not self._workers if self._is_fed else self._trouble is not None

    async def _feed(self, pushes: AsyncIterable[Push]) -> None:
        try:
            async for push in pushes:
                self._pushes.append(push)
                if self._idle:
                    self._idle.popleft().set_result(None)
                elif len(self._workers) < self._limit:
                    self._start_worker()
                while len(self._pushes) >= self._limit:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:  # noqa: BLE001  (whatever it is, it belongs to whoever reads the verdicts)
            self._trouble = error
        self._is_fed = True
        while self._idle:
            self._idle.popleft().set_result(None)
        self._to_read.set()

    def _start_worker(self) -> None:
        worker = asyncio.create_task(self._work(), name="apns worker")
        self._workers.add(worker)
        worker.add_done_callback(self._finished)

    def _finished(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and worker.exception() is not None:
            # Sending answers with verdicts: this is a mistake of ours, and has to be seen.
            self._trouble = worker.exception()
        self._to_read.set()

    async def _work(self) -> None:
        while self._pushes or not self._is_fed:
            if not self._pushes:
                called = asyncio.get_running_loop().create_future()
                self._idle.append(called)
                await called
                continue
            push = self._pushes.popleft()
            if len(self._pushes) < self._limit:
                self._room.set()
            self._results.append((push, await self._send(push)))
            self._to_read.set()
            while len(self._results) >= self._limit:
                self._taken.clear()
                await self._taken.wait()
