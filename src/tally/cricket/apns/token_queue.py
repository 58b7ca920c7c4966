"""Whose turn it is: pushes to one token go one after another, in the order they came, and a newer state lets an older one go.

A turn costs next to nothing while nobody else wants the same token, which is nearly always.
"""

import asyncio
from typing import Final

from tally.kit.clock import Clock


class Turn:
    """A push's place in the row of its token."""

    __slots__ = ("_done", "_newer", "before", "is_over", "is_overtaken")

    def __init__(self, before: "Turn | None") -> None:
        self.before = before
        self.is_overtaken = False
        self.is_over = False
        self._done: asyncio.Event | None = None
        self._newer: asyncio.Event | None = None
        if before is not None:
            before.overtake()

    def overtake(self) -> None:
        self.is_overtaken = True
        if self._newer is not None:
            self._newer.set()

    async def comes(self) -> None:
        """Return when those before are done."""
        while self.before is not None:
            await self.before.over()
            # One that was given up before its turn came leaves those behind it to wait for those
            # before it.
            self.before = self.before.before

    async def over(self) -> None:
        if not self.is_over:
            self._done = self._done or asyncio.Event()
            await self._done.wait()

    async def rest(self, clock: Clock, seconds: float, *, is_state: bool) -> None:
        """Wait so long; for a state, at most until a newer one comes."""
        if not is_state:
            await clock.sleep(seconds)
            return
        if self.is_overtaken:
            return
        self._newer = asyncio.Event()
        sleeping = asyncio.ensure_future(clock.sleep(seconds))
        overtaken = asyncio.ensure_future(self._newer.wait())
        try:
            await asyncio.wait({sleeping, overtaken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            overtaken.cancel()

    def end(self) -> None:
        self.is_over = True
        if self._done is not None:
            self._done.set()


class Turns:
    """The latest turn of each token that has one."""

    def __init__(self) -> None:
        self._latest: Final[dict[str, Turn]] = {}

    def take(self, key: str) -> Turn:
        turn = self._latest[key] = Turn(self._latest.get(key))
        return turn

    def end(self, key: str, turn: Turn) -> None:
        turn.end()
        if self._latest.get(key) is turn:
            del self._latest[key]
