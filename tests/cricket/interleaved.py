"""An engine in front of a real one, which lets a test do something between two operations of a method."""

from collections.abc import Awaitable, Callable
from typing import Any

from tally.store.api import Engine


class Interleaved:
    """Everything goes to the engine behind.

    When it has done `after`, `meanwhile` happens before the caller hears of it.
    """

    def __init__(
        self, behind: Engine, after: str, meanwhile: Callable[[], Awaitable[None]]
    ) -> None:
        self._behind = behind
        self._after = after
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._behind, name)
        if name != self._after:
            return operation

        async def call(*args: Any) -> Any:
            answer = await operation(*args)
            await self._meanwhile()
            return answer

        return call
