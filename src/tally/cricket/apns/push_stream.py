"""Sends a stream of pushes concurrently, with back-pressure in both directions.

A feeder reads the pushes, workers send them, and the caller reads the results. Two bounded queues
connect them, so that at most twice `limit` pushes are in memory. The feeder refills its queue when
it is half empty, so that it does not wake up for every push. The other events only matter when one
side has to wait for another, which is rare at full speed.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeAlias

from tally.cricket.model.push import Push, PushResult

Send: TypeAlias = Callable[[Push], Awaitable[PushResult]]


class PushStream:
    """One stream; it starts workers on demand, up to `limit`."""

    def __init__(self, send: Send, limit: int) -> None:
        self._send = send
        self._limit = limit
        self._pushes: deque[Push] = deque()
        self._results: deque[tuple[Push, PushResult]] = deque()
        self._has_push_space, self._has_results, self._has_result_space = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._is_exhausted = False
        self._error: BaseException | None = None

    async def run(
        self, pushes: AsyncIterable[Push]
    ) -> AsyncGenerator[tuple[Push, PushResult], None]:
        feeder = asyncio.create_task(self._feed(pushes), name="apns feeder")
        try:
            while self._results or not self._is_finished():
                while self._results:
                    yield self._results.popleft()
                self._has_result_space.set()
                if not self._is_finished():
                    self._has_results.clear()
                    await self._has_results.wait()
            if self._error is not None:
                raise self._error
        finally:
            tasks = {feeder, *self._workers}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _is_finished(self) -> bool:
        """Whether all pushes are sent, or a worker failed before the source was exhausted."""
        return not self._workers if self._is_exhausted else self._error is not None

    async def _feed(self, pushes: AsyncIterable[Push]) -> None:
        try:
            async for push in pushes:
                self._pushes.append(push)
                if self._idle:
                    self._idle.popleft().set_result(None)
                elif len(self._workers) < self._limit:
                    self._start_worker()
                while len(self._pushes) >= self._limit:
                    self._has_push_space.clear()
                    await self._has_push_space.wait()
        except Exception as error:  # noqa: BLE001  (raised to the reader of the results)
            self._error = error
        self._is_exhausted = True
        while self._idle:
            self._idle.popleft().set_result(None)
        self._has_results.set()

    def _start_worker(self) -> None:
        worker = asyncio.create_task(self._work(), name="apns worker")
        self._workers.add(worker)
        worker.add_done_callback(self._worker_finished)

    def _worker_finished(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and worker.exception() is not None:
            # Sending returns results and does not raise: this is a bug, and must surface.
            self._error = worker.exception()
        self._has_results.set()

    async def _work(self) -> None:
        while self._pushes or not self._is_exhausted:
            if not self._pushes:
                wake_up = asyncio.get_running_loop().create_future()
                self._idle.append(wake_up)
                await wake_up
                continue
            push = self._pushes.popleft()
            if len(self._pushes) <= self._limit // 2:
                self._has_push_space.set()
            self._results.append((push, await self._send(push)))
            self._has_results.set()
            while len(self._results) >= self._limit:
                self._has_result_space.clear()
                await self._has_result_space.wait()
