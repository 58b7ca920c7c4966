"""Runs tasks, and cancels them reliably.

A cancellation can be lost: a task that awaits the HTTP client may swallow it when the response
arrives at the same time. A task that loops would then continue, and waiting for it would block
forever.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")
REPEAT_SECONDS: Final = 0.2


async def cancel_all(tasks: Iterable[asyncio.Task[Any]], interval: float = REPEAT_SECONDS) -> None:
    """Cancel all tasks every `interval` seconds until they have ended.

    Use a longer interval for tasks that need time to clean up. The caller inspects the results.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=interval)


@asynccontextmanager
async def running_loops(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless coroutines as tasks inside the context."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        await cancel_all(tasks)


async def run_while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, or cancel it and raise ClientDisconnect if the client leaves.

    For long reads without a request body, whose result nobody would receive.
    """
    running, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_wait_until_gone(request))
    try:
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientDisconnect
        return running.result()
    finally:
        await cancel_all({running, leaving})


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
