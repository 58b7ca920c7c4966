"""The matches that this instance sees to, each by a worker of its own while there is something to do for it.

A match is seen to under its lock, by one instance at a time; by another one within the lock's time
if that one dies. A worker keeps the lock while its fan-out is on the way, and takes what further
polls say meanwhile; then it lets go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.records import match_lock_key
from tally.cricket.service.live.pipeline import LiveMatch, Overtaken, Pipeline
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock

LOCK_SECONDS: Final = 10.0

_log = logs.logger()


@dataclass(slots=True)
class Told:
    """A poll for a worker; `is_taken` is settled when it has been taken, or somebody else sees to the match."""

    feed: MatchFeed
    is_final: bool
    is_taken: asyncio.Future[bool]


@dataclass(slots=True)
class Worker:
    """Sees to one match while there is something to do."""

    live: LiveMatch
    inbox: list[Told] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class MatchWorkers:
    """The matches that this instance sees to: an async context manager, whose end lets go of them."""

    def __init__(
        self, pipeline: Pipeline, locks: Locks, clock: Clock, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        self._pipeline = pipeline
        self._locks = locks
        self._clock = clock
        self._lock_seconds = lock_seconds
        self._workers: dict[str, Worker] = {}
        self._beside: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def take(self, feed: MatchFeed, *, is_final: bool = False) -> bool:
        """Whether this instance has taken the poll; its devices may still be on the way to be told."""
        worker = self._workers.setdefault(feed.match_id, Worker(self._pipeline.open(feed.match_id)))
        told = Told(feed, is_final, asyncio.get_running_loop().create_future())
        worker.inbox.append(told)
        worker.arrived.set()
        if worker.task is None or worker.task.done():
            worker.task = asyncio.create_task(
                self._see_to(feed.match_id, worker), name=f"match {feed.match_id}"
            )
        return await told.is_taken

    @property
    def held(self) -> Mapping[str, LiveMatch]:
        """What this instance holds of each match."""
        return {match_id: worker.live for match_id, worker in self._workers.items()}

    def beside(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do something while matches are seen to, unless the same is still being done."""
        self._beside = {name: task for name, task in self._beside.items() if not task.done()}
        if name not in self._beside:
            self._beside[name] = asyncio.create_task(_logged(name, work), name=name)

    async def idle(self) -> None:
        """Return when no fan-out is on the way, and nothing is done beside."""
        while tasks := [task for task in self._tasks() if not task.done()]:
            await asyncio.wait(tasks)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [
            *(worker.task for worker in self._workers.values() if worker.task is not None),
            *self._beside.values(),
        ]

    def forget(self, match_id: str) -> None:
        """The match is over and everybody knows: hold nothing of it any more."""
        worker = self._workers.get(match_id)
        if worker is not None and (worker.task is None or worker.task.done()):
            del self._workers[match_id]
            self._pipeline.processing.forget(match_id)

    async def _see_to(self, match_id: str, worker: Worker) -> None:
        try:
            await run_with_lock(
                self._locks,
                self._clock,
                match_lock_key(match_id),
                self._lock_seconds,
                lambda: self._work(worker),
            )
            return
        except LockedElsewhere:
            _log.debug(
                "Another instance sees to the match", action="match_elsewhere", match=match_id
            )
        except (LockLost, Overtaken) as lost:
            _log.warning(
                "The match has been taken over", action="match_lost", match=match_id, error=lost
            )
        except Exception:  # noqa: BLE001  (one match must not stop the others; the next poll tries again)
            _log.exception("A match could not be seen to", action="match_failed", match=match_id)
        finally:
            for told in worker.inbox:
                _settle(told, is_taken=False)
            worker.inbox.clear()
        # What was on its way may be older than what others have done since: the next poll begins
        # from what is stored.
        worker.live = self._pipeline.open(match_id)

    async def _work(self, worker: Worker) -> None:
        """Take what arrives, and tell the devices, until there is nothing left of both."""
        telling: asyncio.Task[None] | None = None
        try:
            while True:
                while worker.inbox:
                    told = worker.inbox[0]
                    await self._pipeline.take(worker.live, told.feed, is_final=told.is_final)
                    worker.inbox.remove(told)
                    _settle(told, is_taken=True)
                if telling is not None and telling.done():
                    await telling
                    telling = None
                if telling is None and worker.live.fan_out.is_busy:
                    telling = asyncio.create_task(worker.live.fan_out.run())
                if telling is None:
                    return
                worker.arrived.clear()
                arriving = asyncio.create_task(worker.arrived.wait())
                try:
                    await asyncio.wait({telling, arriving}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    arriving.cancel()
        finally:
            if telling is not None and not telling.done():
                telling.cancel()
                await asyncio.wait({telling})


async def _logged(name: str, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:  # noqa: BLE001  (whoever asked is gone; the next poll asks again)
        _log.exception("Something beside the matches failed", action="beside", what=name)


def _settle(told: Told, *, is_taken: bool) -> None:
    if not told.is_taken.done():
        told.is_taken.set_result(is_taken)
