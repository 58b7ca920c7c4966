"""Records requests to the simulator: recent ones in full, all of them as counts."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import msgspec

MAX_RECORDED_PUSHES: Final = 10_000


class RecordedPush(msgspec.Struct, frozen=True):
    """A request and its response; one field per value of the control API's log.

    `target` is the token or the channel. A `status` of 0 means that no response was sent.
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
    """The log. Without `is_recording` it only counts, for load tests."""

    def __init__(self) -> None:
        self.is_recording = True
        self.entries: deque[RecordedPush] = deque(maxlen=MAX_RECORDED_PUSHES)
        self.counts: Counter[tuple[int, str]] = Counter()
        self.connections = 0
        self._changed = asyncio.Event()

    def limit(self, limit: int) -> None:
        """Record at most `limit` requests in full."""
        self.entries = deque(self.entries, maxlen=limit)

    @property
    def accepted(self) -> int:
        """The number of accepted pushes and broadcasts."""
        return self.counts[200, ""]

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, entry: RecordedPush) -> None:
        self.counts[entry.status, entry.reason] += 1
        if self.is_recording:
            self.entries.append(entry)
        self._changed.set()

    def count(self, status: int, reason: str) -> None:
        """Count a request without recording it."""
        self.counts[status, reason] += 1
        self._changed.set()

    def for_target(self, target: str) -> list[RecordedPush]:
        """The requests for a token or channel, oldest first."""
        return [entry for entry in self.entries if entry.target == target]

    def payloads(self, target: str) -> list[bytes]:
        """The accepted payloads for a token or channel, oldest first."""
        return [entry.payload for entry in self.for_target(target) if entry.status == 200]

    def clear(self) -> None:
        self.entries.clear()
        self.counts.clear()

    async def wait_until(self, condition: Callable[["RequestLog"], bool]) -> None:
        """Wait until the log satisfies a condition."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()
