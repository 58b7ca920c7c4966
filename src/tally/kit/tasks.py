"""Ends tasks for certain.

A cancellation can get lost: what waits for an answer of the HTTP client may swallow it when the
answer comes in the same moment. A task that goes round in a loop would then live on, and whoever
waits for its end would wait for ever.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

AGAIN_SECONDS: Final = 0.2


async def cancel_all(tasks: Iterable[asyncio.Task[Any]], again: float = AGAIN_SECONDS) -> None:
    """Return when all of these have ended: each is cancelled every `again` seconds, as often as it takes.

    Who needs time to end gets it by a longer pause. How they ended is for the caller to look at.
    """
    waiting = {task for task in tasks if not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=again)
