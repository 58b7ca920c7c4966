"""Polls watched objects for changes, whichever process made them.

    poller = ChangePoller(
        clock, versions=versions, read=milestone, version=lambda milestone: milestone.version,
        on_change=publish,
    )
    async with poller:
        with poller.watch(key, milestone): ...    # while a client of this process watches it
        poller.refresh(key)                       # changed by this process: read it now

One poll a second covers all objects watched in this process, however many clients watch them:
`versions` returns the versions of all keys in one call, and only objects with a higher version are
read. `on_change` receives the previous and the current state. With `on_removed`, an object that
`versions` no longer returns is read, and reported if it does not exist: at each poll, until the
last watcher leaves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Generic, Self, TypeVar

from tally.kit import logs
from tally.kit.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

POLL_SECONDS: Final = 1.0

_log = logs.logger()


class _Watched(Generic[V]):
    """A watched object: its last published state, its watchers and the read in progress."""

    __slots__ = ("is_stale", "read_task", "state", "watchers")

    def __init__(self, state: V) -> None:
        self.state = state
        self.watchers = 0
        self.is_stale = False
        self.read_task: asyncio.Task[None] | None = None


class ChangePoller(Generic[K, V]):
    """An async context manager that polls while it is open."""

    def __init__(
        self,
        clock: Clock,
        *,
        versions: Callable[[Sequence[K]], Awaitable[Mapping[K, int]]],
        read: Callable[[K], Awaitable[V | None]],
        version: Callable[[V], int],
        on_change: Callable[[K, V, V], None],
        on_removed: Callable[[K], None] | None = None,
        interval: float = POLL_SECONDS,
    ) -> None:
        self._clock = clock
        self._versions = versions
        self.read = read
        self._version = version
        self._on_change = on_change
        self._on_removed = on_removed
        self._interval = interval
        self._watched: dict[K, _Watched[V]] = {}
        self._has_watchers = asyncio.Event()
        self._poll_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._poll_task = asyncio.create_task(self._poll_forever(), name="change-poller")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [watched.read_task for watched in self._watched.values()] + [self._poll_task]
        running = {task for task in tasks if task is not None}
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    @contextmanager
    def watch(self, key: K, state: V) -> Iterator[None]:
        """Watch `key` inside the block; `state` is the state that the watcher already has."""
        watched = self._watched.setdefault(key, _Watched(state))
        watched.watchers += 1
        self._has_watchers.set()
        try:
            yield
        finally:
            watched.watchers -= 1
            if watched.watchers == 0:
                del self._watched[key]
                if watched.read_task is not None:
                    watched.read_task.cancel()
                if not self._watched:
                    self._has_watchers.clear()

    def refresh(self, key: K) -> None:
        """Read `key` now if it is watched, because this process changed it."""
        watched = self._watched.get(key)
        if watched is None:
            return
        watched.is_stale = True
        if watched.read_task is None:
            watched.read_task = asyncio.create_task(self._read(key, watched))

    async def _poll_forever(self) -> None:
        while True:
            await self._has_watchers.wait()
            await self._clock.sleep(self._interval)
            keys = list(self._watched)
            try:
                found = await self._versions(keys) if keys else {}
            except Exception as error:  # noqa: BLE001  (the next poll may succeed)
                _log.warning("Polling for changes failed", action="poll_failed", error=error)
                continue
            for key in keys:
                if self._may_have_changed(key, found.get(key)):
                    self.refresh(key)

    def _may_have_changed(self, key: K, version: int | None) -> bool:
        watched = self._watched.get(key)
        if watched is None:
            return False
        if version is None:
            return self._on_removed is not None
        return version > self._version(watched.state)

    async def _read(self, key: K, watched: _Watched[V]) -> None:
        try:
            # A change that arrives during a read causes another read.
            while watched.is_stale:
                watched.is_stale = False
                state = await self.read(key)
                if state is None:
                    if self._on_removed is not None:
                        self._on_removed(key)
                elif self._version(state) > self._version(watched.state):
                    previous, watched.state = watched.state, state
                    self._on_change(key, previous, state)
        except Exception as error:  # noqa: BLE001  (the next poll finds the change again)
            _log.warning("Publishing a change failed", action="change_publish_failed", error=error)
        finally:
            watched.read_task = None
