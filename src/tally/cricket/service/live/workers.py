"""One worker task per match that this instance processes.

A worker holds the lock of its match, so that one instance at a time processes it; if that instance
dies, another one takes over within the lock's lifetime. The worker keeps the lock while its fan-out
runs, processes further polls in the meantime, and then releases it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.records import match_lock_key
from tally.cricket.service.live.pipeline import LiveMatch, MatchTakenOver, Pipeline
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock

LOCK_SECONDS: Final = 10.0

_log = logs.logger()


@dataclass(slots=True)
class QueuedPoll:
    """A poll in a worker's queue; `is_processed` resolves to whether this instance processed it."""

    feed: MatchFeed
    is_final: bool
    is_processed: asyncio.Future[bool]


@dataclass(slots=True)
class MatchWorker:
    """The state of one match and the polls that wait to be processed."""

    live_match: LiveMatch
    queue: list[QueuedPoll] = field(default_factory=list)
    has_polls: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class MatchWorkers:
    """The workers of this instance: an async context manager that cancels them on exit."""

    def __init__(
        self, pipeline: Pipeline, locks: Locks, clock: Clock, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        self._pipeline = pipeline
        self._locks = locks
        self._clock = clock
        self._lock_seconds = lock_seconds
        self._workers: dict[str, MatchWorker] = {}
        self._background: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def process(self, feed: MatchFeed, *, is_final: bool = False) -> bool:
        """Process a poll; return whether this instance did. The fan-out may still be running."""
        worker = self._workers.setdefault(
            feed.match_id, MatchWorker(self._pipeline.open(feed.match_id))
        )
        poll = QueuedPoll(feed, is_final, asyncio.get_running_loop().create_future())
        worker.queue.append(poll)
        worker.has_polls.set()
        if worker.task is None or worker.task.done():
            worker.task = asyncio.create_task(
                self._process_locked(feed.match_id, worker), name=f"match {feed.match_id}"
            )
        return await poll.is_processed

    async def hydrate(self, match_ids: Iterable[str]) -> None:
        """Read what these matches need, before this instance starts to process them."""
        await self._pipeline.hydrate(match_ids)

    @property
    def live_matches(self) -> Mapping[str, LiveMatch]:
        """The in-memory state of each match, by match id."""
        return {match_id: worker.live_match for match_id, worker in self._workers.items()}

    def run_in_background(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Start a background task, unless the one of the same name is still running."""
        self._background = {
            name: task for name, task in self._background.items() if not task.done()
        }
        if name not in self._background:
            self._background[name] = asyncio.create_task(_run_logged(name, work), name=name)

    async def wait_idle(self) -> None:
        """Wait until no worker and no background task runs."""
        while tasks := [task for task in self._tasks() if not task.done()]:
            await asyncio.wait(tasks)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [
            *(worker.task for worker in self._workers.values() if worker.task is not None),
            *self._background.values(),
        ]

    def forget(self, match_id: str) -> None:
        """Drop the in-memory state of a match that is over, if its worker is idle."""
        worker = self._workers.get(match_id)
        if worker is not None and (worker.task is None or worker.task.done()):
            del self._workers[match_id]
            self._pipeline.ball_logs.forget(match_id)

    async def _process_locked(self, match_id: str, worker: MatchWorker) -> None:
        try:
            await run_with_lock(
                self._locks,
                self._clock,
                match_lock_key(match_id),
                self._lock_seconds,
                lambda: self._process_queue(worker),
            )
            return
        except LockedElsewhere:
            _log.debug(
                "Match is processed by another instance", action="match_locked", match=match_id
            )
        except (LockLost, MatchTakenOver) as error:
            _log.warning(
                "Match was taken over by another instance",
                action="match_lost",
                match=match_id,
                error=error,
            )
        except Exception:  # noqa: BLE001  (must not affect other matches; the next poll tries again)
            _log.exception("Match processing failed", action="match_failed", match=match_id)
        finally:
            for poll in worker.queue:
                _resolve(poll, is_processed=False)
            worker.queue.clear()
        # Another instance may have delivered a newer state since: the next poll starts from the
        # stored state.
        worker.live_match = self._pipeline.open(match_id)

    async def _process_queue(self, worker: MatchWorker) -> None:
        """Process polls and run the fan-out until neither has anything left to do."""
        fan_out: asyncio.Task[None] | None = None
        try:
            while True:
                while worker.queue:
                    poll = worker.queue[0]
                    await self._pipeline.process(
                        worker.live_match, poll.feed, is_final=poll.is_final
                    )
                    worker.queue.remove(poll)
                    _resolve(poll, is_processed=True)
                if fan_out is not None and fan_out.done():
                    await fan_out
                    fan_out = None
                if fan_out is None and worker.live_match.fan_out.is_busy:
                    fan_out = asyncio.create_task(worker.live_match.fan_out.run())
                if fan_out is None:
                    return
                worker.has_polls.clear()
                waiting = asyncio.create_task(worker.has_polls.wait())
                try:
                    await asyncio.wait({fan_out, waiting}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
        finally:
            if fan_out is not None and not fan_out.done():
                fan_out.cancel()
                await asyncio.wait({fan_out})


async def _run_logged(name: str, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:  # noqa: BLE001  (no caller awaits the task; the next poll restarts it)
        _log.exception("Background task failed", action="background_task_failed", task=name)


def _resolve(poll: QueuedPoll, *, is_processed: bool) -> None:
    if not poll.is_processed.done():
        poll.is_processed.set_result(is_processed)
