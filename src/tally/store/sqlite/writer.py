"""One thread writes, in groups: whatever waits shares one transaction and one fsync, and nobody is answered before it.

A job is a function of the connection. It decides first and writes last, so a refused job (a failed condition) leaves nothing
behind and the group goes on. If SQLite itself fails in the middle, the group is rolled back and its jobs run again one by one,
so that each gets its own answer: jobs must therefore be safe to run twice.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import apsw

from tally.store.errors import StoreError, Unavailable
from tally.store.sqlite.files import connect, translate

T = TypeVar("T")
Work: TypeAlias = Callable[[apsw.Connection], Any]
_MAX_GROUP = 512
_CHECKPOINT_PAGES = 1_000
_RESTART_PAGES = 16_000


class _Job:
    """Work that waits for its turn, and the future of the one who asked."""

    __slots__ = ("failure", "future", "result", "work")

    def __init__(self, work: Work, future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.failure: BaseException | None = None


class Writer:
    """The one writer of this process. Other processes may have theirs: SQLite's lock orders them."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop, begun: Callable[[apsw.Connection], None]) -> None:
        self._path = path
        self._loop = loop
        self._begun = begun
        self._connection = connect(path)
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._checkpoint = _Checkpoint(path)
        self._connection.set_wal_hook(self._checkpoint.committed)
        self._thread = threading.Thread(target=self._run, name="tally-store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[apsw.Connection], T]) -> "asyncio.Future[T]":
        """Ask for the work to be done; the future is answered once it is durable."""
        if self._closed:
            raise Unavailable("the store is closed")
        future = self._loop.create_future()
        self._waiting.put(_Job(work, future))
        return future

    async def close(self) -> None:
        """Do what was asked for, then stop."""
        if self._closed:
            return
        self._closed = True
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._checkpoint.close)

    def _run(self) -> None:
        go_on = True
        while go_on:
            group, go_on = self._next_group()
            if group:
                self._commit(group)
                self._loop.call_soon_threadsafe(_answer, group)
        self._connection.close()

    def _next_group(self) -> tuple[list[_Job], bool]:
        group: list[_Job] = []
        job = self._waiting.get()
        while job is not None:
            group.append(job)
            if len(group) == _MAX_GROUP:
                return group, True
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, group: list[_Job]) -> None:
        try:
            self._transaction(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer of the job that caused it
            if len(group) == 1:
                group[0].failure = translate(error, self._path) if isinstance(error, apsw.Error) else error
            else:
                for job in group:
                    self._commit([job])
        self._checkpoint.restart_if_long(self._connection)

    def _transaction(self, group: list[_Job]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._begun(connection)
            for job in group:
                try:
                    job.result, job.failure = job.work(connection), None
                except StoreError as refusal:
                    job.failure = refusal
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _answer(group: list[_Job]) -> None:
    for job in group:
        if job.future.done():
            continue
        if job.failure is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.failure)


class _Checkpoint:
    """Copies the write-ahead log into the database beside the commits, and keeps the log short."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._wanted = threading.Event()
        self._stopped = False
        self._pages = 0
        self._thread = threading.Thread(target=self._run, name="tally-store-checkpoint", daemon=True)
        self._thread.start()

    def committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Told by SQLite after each commit how long the log is."""
        self._pages = pages
        if pages > _CHECKPOINT_PAGES:
            self._wanted.set()
        return apsw.SQLITE_OK

    def restart_if_long(self, connection: apsw.Connection) -> None:
        """Under steady writing the log never empties by itself: now and then the writer waits for the little that is left."""
        if self._pages > _RESTART_PAGES:
            _checkpoint(connection, apsw.SQLITE_CHECKPOINT_RESTART)
            self._pages = 0

    def close(self) -> None:
        """Stop, leaving an empty log where nobody else uses it."""
        self._stopped = True
        self._wanted.set()
        self._thread.join()
        _checkpoint(self._connection, apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.close()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._stopped:
                return
            _checkpoint(self._connection, apsw.SQLITE_CHECKPOINT_PASSIVE)


def _checkpoint(connection: apsw.Connection, mode: int) -> None:
    """A checkpoint that cannot be had now (another process reads or checkpoints, the disk is full) is tried at a later commit."""
    try:
        connection.wal_checkpoint(mode=mode)
    except apsw.Error:
        return
