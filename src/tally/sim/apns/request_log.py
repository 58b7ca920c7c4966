"""What the simulated push service has seen: the latest requests one by one, and all of them as sums."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import msgspec

MAX_RECORDED_PUSHES: Final = 10_000


class RecordedPush(msgspec.Struct, frozen=True):
    """A request and its answer.

    `target` is the token or the channel; `status` 0: it was never answered.
    """

    target: str
    status: int
    reason: str
    connection: int
    at_ms: int
    method: str
    path: str
    push_type: str
    priority: str
    expiration: str
    topic: str
    apns_id: str
    collapse_id: str
    payload: bytes


class RequestLog:
    """`remembers` off keeps the sums alone, which is for load."""

    def __init__(self) -> None:
        self.remembers = True
        self.seen: deque[RecordedPush] = deque(maxlen=MAX_RECORDED_PUSHES)
        self.answers: Counter[tuple[int, str]] = Counter()
        self.connections = 0
        self._changed = asyncio.Event()

    def remember(self, most: int) -> None:
        """Keep no more requests one by one than this."""
        self.seen = deque(self.seen, maxlen=most)

    @property
    def accepted(self) -> int:
        """How many pushes and broadcasts were taken."""
        return self.answers[200, ""]

    @property
    def total(self) -> int:
        return self.answers.total()

    def add(self, seen: RecordedPush) -> None:
        self.answers[seen.status, seen.reason] += 1
        if self.remembers:
            self.seen.append(seen)
        self._changed.set()

    def count(self, status: int, reason: str) -> None:
        """The same without the request, which is cheaper."""
        self.answers[status, reason] += 1
        self._changed.set()

    def of(self, target: str) -> list[RecordedPush]:
        """What came for a token or a channel, oldest first."""
        return [seen for seen in self.seen if seen.target == target]

    def payloads(self, target: str) -> list[bytes]:
        """What was taken for a token or a channel, oldest first."""
        return [seen.payload for seen in self.of(target) if seen.status == 200]

    def clear(self) -> None:
        self.seen.clear()
        self.answers.clear()

    async def until(self, holds: Callable[["RequestLog"], bool]) -> None:
        """Wait until what was seen satisfies a condition."""
        while not holds(self):
            self._changed.clear()
            await self._changed.wait()
