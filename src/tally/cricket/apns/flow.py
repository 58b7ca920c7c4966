"""Many pushes at once: a stream of pushes in, a stream of verdicts out, and never more in memory than are under way."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeAlias

from tally.cricket.apns.model import Push, Verdict

Send: TypeAlias = Callable[[Push], Awaitable[Verdict]]


class Flow:
    """One stream: a feeder that reads the pushes, and as many workers as are needed, up to a limit, that send them."""

    def __init__(self, send: Send, limit: int) -> None:
        self._send = send
        self._limit = limit
        self._pushes: asyncio.Queue[Push | None] = asyncio.Queue(limit)
        self._results: asyncio.Queue[tuple[Push, Verdict] | BaseException | None] = asyncio.Queue(limit)
        self._tasks: list[asyncio.Task[None]] = []
        self._idle = 0
        self._working = 0

    async def run(self, pushes: AsyncIterable[Push]) -> AsyncGenerator[tuple[Push, Verdict], None]:
        self._tasks.append(asyncio.create_task(self._feed(pushes), name="apns feed"))
        try:
            while (result := await self._results.get()) is not None:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    async def _feed(self, pushes: AsyncIterable[Push]) -> None:
        trouble: Exception | None = None
        try:
            async for push in pushes:
                if self._idle == 0 and self._working < self._limit:
                    self._working += 1
                    self._tasks.append(asyncio.create_task(self._work(), name="apns worker"))
                await self._pushes.put(push)
        except Exception as error:  # noqa: BLE001  (whatever it is, it belongs to whoever reads the verdicts)
            trouble = error
        workers = self._tasks[1:]
        for _ in workers:
            await self._pushes.put(None)
        await asyncio.gather(*workers)
        await self._results.put(trouble)

    async def _work(self) -> None:
        while True:
            self._idle += 1
            push = await self._pushes.get()
            self._idle -= 1
            if push is None:
                return
            try:
                verdict = await self._send(push)
            except Exception as error:  # noqa: BLE001  (sending answers with verdicts: this is a mistake of ours, to be seen)
                await self._results.put(error)
                return
            await self._results.put((push, verdict))
