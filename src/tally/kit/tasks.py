"""Cancels tasks reliably.

A cancellation can be lost: a task that awaits the HTTP client may swallow it when the response
arrives at the same time. A task that loops would then continue, and waiting for it would block
forever.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

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
