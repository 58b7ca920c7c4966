"""Whoever watches something is told of its changes, whichever process made them.

    follower = ChangePoller(clock, marks=versions, read=milestone, mark_of=lambda milestone: milestone.version, tell=publish)
    async with follower:
        with follower.following(key, milestone): ...    # while somebody watches it here
        follower.nudge(key)                             # changed by this process: look at once

For each thing that is watched in this process there is one look a second, however many watch it:
`marks` asks for the marks of all of them together, and only what has a higher mark than it had is
read. `tell` hears how it was and how it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Generic, Self, TypeVar

from tally.kit import logs
from tally.kit.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LOOK_SECONDS: Final = 1.0

_log = logs.logger()


class _Followed(Generic[V]):
    """Something that is watched: by how many, how it was when they were last told, and whether it is being read."""

    __slots__ = ("is_stale", "reading", "state", "watchers")

    def __init__(self, state: V) -> None:
        self.state = state
        self.watchers = 0
        self.is_stale = False
        self.reading: asyncio.Task[None] | None = None


class ChangePoller(Generic[K, V]):
    """An async context manager, between whose start and end those who watch are told."""

    def __init__(
        self,
        clock: Clock,
        *,
        marks: Callable[[Sequence[K]], Awaitable[Mapping[K, int]]],
        read: Callable[[K], Awaitable[V | None]],
        mark_of: Callable[[V], int],
        tell: Callable[[K, V, V], None],
        seconds: float = LOOK_SECONDS,
    ) -> None:
        self._clock = clock
        self._marks = marks
        self.read = read
        self._mark_of = mark_of
        self._tell = tell
        self._seconds = seconds
        self._followed: dict[K, _Followed[V]] = {}
        self._is_watched = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look_again_and_again(), name="follower")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [each.reading for each in self._followed.values()] + [self._looking]
        under_way = {task for task in tasks if task is not None}
        for task in under_way:
            task.cancel()
        await asyncio.wait(under_way)

    @contextmanager
    def following(self, key: K, state: V) -> Iterator[None]:
        """Watch for as long as this lasts; `state` is what the one who watches knows already."""
        followed = self._followed.setdefault(key, _Followed(state))
        followed.watchers += 1
        self._is_watched.set()
        try:
            yield
        finally:
            followed.watchers -= 1
            if followed.watchers == 0:
                del self._followed[key]
                if followed.reading is not None:
                    followed.reading.cancel()
                if not self._followed:
                    self._is_watched.clear()

    def nudge(self, key: K) -> None:
        """Look at this one now, if anybody watches it: it was changed."""
        followed = self._followed.get(key)
        if followed is None:
            return
        followed.is_stale = True
        if followed.reading is None:
            followed.reading = asyncio.create_task(self._renew(key, followed))

    async def _look_again_and_again(self) -> None:
        while True:
            await self._is_watched.wait()
            await self._clock.sleep(self._seconds)
            try:
                found = await self._marks(list(self._followed)) if self._followed else {}
            except Exception as error:  # noqa: BLE001  (whatever it is, the next look may work)
                _log.warning("Nobody can see what is new", action="follow", error=error)
                continue
            for key, mark in found.items():
                followed = self._followed.get(key)
                if followed is not None and mark > self._mark_of(followed.state):
                    self.nudge(key)

    async def _renew(self, key: K, followed: _Followed[V]) -> None:
        try:
            # A change that comes while one is being read has the reading done once more.
            while followed.is_stale:
                followed.is_stale = False
                state = await self.read(key)
                if state is not None and self._mark_of(state) > self._mark_of(followed.state):
                    before, followed.state = followed.state, state
                    self._tell(key, before, state)
        except Exception as error:  # noqa: BLE001  (the next look finds the change again)
            _log.warning("A change could not be told", action="follow", error=error)
        finally:
            followed.reading = None
