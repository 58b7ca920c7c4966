"""One thread writes, in groups: whatever waits shares one transaction and one fsync, and nobody is answered before it.

The engine says how a group is run (`groups.py`). A job decides first and writes last, so a refused
one (a failed condition) leaves nothing behind and its group goes on. If SQLite itself fails in the
middle, the group is rolled back and its jobs run again one by one, so that each gets its own
answer: jobs must therefore be safe to run twice.
"""

import asyncio
import queue
import threading
from pathlib import Path
from typing import Any, Protocol

import apsw

from tally.store.errors import StorageUnwritable, StoreError, StoreUnavailable
from tally.store.sqlite.checkpoint import Checkpoint
from tally.store.sqlite.files import connect, file_identity, to_store_error

_MAX_GROUP = 512


class WriteJob:
    """Work that waits for its turn, and the future of the one who asked."""

    __slots__ = ("failure", "future", "result", "work")

    def __init__(self, work: Any, future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.failure: BaseException | None = None


class GroupExecutor(Protocol):
    """How a group is run inside of a transaction, and what to do after it."""

    def run(self, connection: apsw.Connection, group: list[WriteJob]) -> None: ...
    def committed(self, connection: apsw.Connection) -> None: ...
    def rolled_back(self) -> None: ...


class WriterThread:
    """The one writer of this process.

    Other processes may have theirs: SQLite's lock orders them.
    """

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        groups: GroupExecutor,
        file: tuple[int, int] | None = None,
    ) -> None:
        """`file` is the identity of the file that is meant, where that is not just the one at the path now."""
        self.file = file or file_identity(path)
        self._path = path
        self._loop = loop
        self._groups = groups
        self._connection = connect(path)
        self._waiting: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._closed = False
        self._checkpoint = Checkpoint(path)
        self._connection.set_wal_hook(self._checkpoint.committed)
        self._thread = threading.Thread(target=self._run, name="tally-store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Any) -> "asyncio.Future[Any]":
        """Ask for the work to be done; the future is answered once it is durable."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        future = self._loop.create_future()
        self._waiting.put(WriteJob(work, future))
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

    def _next_group(self) -> tuple[list[WriteJob], bool]:
        """All that waits: fewer at a time let the loop work while this thread syncs, but then the two fight for Python's lock."""
        group: list[WriteJob] = []
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

    def _commit(self, group: list[WriteJob]) -> None:
        try:
            self._begin()
        except (apsw.Error, StoreError) as error:
            # Nobody's own fault: all are told at once, instead of each after a wait of its own.
            for job in group:
                job.failure = self._told(error)
            return
        try:
            self._transaction(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer of the job that caused it
            if len(group) == 1:
                group[0].failure = self._told(error)
            else:
                for job in group:
                    self._commit([job])
        self._checkpoint.restart_if_long(self._connection)

    def _begin(self) -> None:
        if file_identity(self._path) != self.file:
            raise StorageUnwritable(f"{self._path} was replaced by another file")
        self._connection.execute("BEGIN IMMEDIATE")

    def _transaction(self, group: list[WriteJob]) -> None:
        connection = self._connection
        try:
            self._groups.run(connection, group)
            connection.execute("COMMIT")
            self._groups.committed(connection)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._groups.rolled_back()
            raise

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, apsw.Error | UnicodeDecodeError):
            return to_store_error(error, self._path, self._connection.system_errno)
        return error


def _answer(group: list[WriteJob]) -> None:
    for job in group:
        if job.future.done():
            continue
        if job.failure is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.failure)
