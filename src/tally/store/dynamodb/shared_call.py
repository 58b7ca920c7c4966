"""Shares the result of a request between concurrent callers.

A thousand clients that connect at once cause two requests, not a thousand: DescribeStream allows
ten per second.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")


class SharedCall(Generic[ResultT]):
    """Each caller gets the result of a call that began after its own; callers share calls."""

    def __init__(self, call: Callable[[], Awaitable[ResultT]]) -> None:
        self._call = call
        self._lock = asyncio.Lock()
        self._started = 0
        self._last: tuple[int, ResultT] | None = None

    async def get(self) -> ResultT:
        """Return a result that is as new as this request."""
        ticket = self._started + 1
        async with self._lock:
            if self._last is not None and self._last[0] >= ticket:
                return self._last[1]
            self._started += 1
            number = self._started
            result = await self._call()
            self._last = number, result
            return result
