"""Orders the pushes to one token: one after another in call order, and a newer one supersedes.

An entry costs next to nothing while no other push to the same token is pending, which is the
common case.
"""

import asyncio
from typing import Final

from tally.kit.clock import Clock


class QueueEntry:
    """The place of one push in the queue of its token."""

    __slots__ = ("_done", "_superseded", "is_done", "is_superseded", "previous")

    def __init__(self, previous: "QueueEntry | None") -> None:
        self.previous = previous
        self.is_superseded = False
        self.is_done = False
        self._done: asyncio.Event | None = None
        self._superseded: asyncio.Event | None = None
        if previous is not None:
            previous.supersede()

    def supersede(self) -> None:
        self.is_superseded = True
        if self._superseded is not None:
            self._superseded.set()

    async def wait_for_previous(self) -> None:
        """Wait until all earlier entries are done."""
        while self.previous is not None:
            await self.previous.wait_done()
            # An entry that was cancelled while it waited is done before its own predecessor is.
            self.previous = self.previous.previous

    async def wait_done(self) -> None:
        if not self.is_done:
            self._done = self._done or asyncio.Event()
            await self._done.wait()

    async def back_off(self, clock: Clock, seconds: float, *, is_replaceable: bool) -> None:
        """Sleep; a replaceable push wakes up early when a newer one arrives."""
        if not is_replaceable:
            await clock.sleep(seconds)
            return
        if self.is_superseded:
            return
        self._superseded = asyncio.Event()
        sleeping = asyncio.ensure_future(clock.sleep(seconds))
        superseded = asyncio.ensure_future(self._superseded.wait())
        try:
            await asyncio.wait({sleeping, superseded}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            superseded.cancel()

    def finish(self) -> None:
        self.is_done = True
        if self._done is not None:
            self._done.set()


class TokenQueue:
    """The newest queue entry of each token that has pending pushes."""

    def __init__(self) -> None:
        self._newest: Final[dict[str, QueueEntry]] = {}

    def enqueue(self, key: str) -> QueueEntry:
        entry = self._newest[key] = QueueEntry(self._newest.get(key))
        return entry

    def finish(self, key: str, entry: QueueEntry) -> None:
        entry.finish()
        if self._newest.get(key) is entry:
            del self._newest[key]
