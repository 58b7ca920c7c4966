"""The writer thread with group commit: waiting jobs share one transaction and one fsync.

No job is acknowledged before the fsync. `bulk/group_executor.py` runs the jobs of a group. A job
reads and decides before it writes, so a rejected job leaves nothing behind and its group continues.
If SQLite fails, the group is rolled back and its jobs run again one by one, so each gets its own
result: jobs must be safe to run twice.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import apsw

from tally.store.errors import StorageUnwritable, StoreError, StoreUnavailable
from tally.store.sqlite.checkpoint import Checkpoint
from tally.store.sqlite.files import connect, file_identity, to_store_error

_MAX_GROUP = 512  # plus the jobs of one iteration of the event loop


class WriteJob:
    """Queued work and the future of its caller."""

    __slots__ = ("failure", "future", "result", "work")

    def __init__(self, work: Any, future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.failure: BaseException | None = None


class GroupExecutor(Protocol):
    """Runs a group inside a transaction, and is notified of the commit or rollback."""

    def run(self, connection: apsw.Connection, group: list[WriteJob]) -> None: ...
    def on_commit(self, connection: apsw.Connection) -> None: ...
    def on_rollback(self) -> None: ...


class WriterThread:
    """The only writer of this process; SQLite's lock serializes writers of other processes."""

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        executor: GroupExecutor,
        identity: tuple[int, int] | None = None,
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the thread; `identity` is the expected file, by default the one at the path.

        `on_commit` is called on the event loop after the callers of a group got their results.
        """
        self.identity = identity or file_identity(path)
        self._path = path
        self._loop = loop
        self._executor = executor
        self._on_commit = on_commit
        self._connection = connect(path)
        self._submitted: list[WriteJob] = []  # during this iteration of the event loop
        self._queue: queue.SimpleQueue[list[WriteJob] | None] = queue.SimpleQueue()
        self._closed = False
        self._checkpoint = Checkpoint(path)
        self._connection.set_wal_hook(self._checkpoint.on_commit)
        self._thread = threading.Thread(target=self._run, name="tally-store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Any) -> "asyncio.Future[Any]":
        """Queue the work; the future resolves once it is durable."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        future = self._loop.create_future()
        if not self._submitted:
            self._loop.call_soon(self._hand_over)
        self._submitted.append(WriteJob(work, future))
        return future

    def _hand_over(self) -> None:
        """Wake the thread once per iteration of the event loop.

        Woken by the first job, it would compete for the GIL with the requests that are about to
        submit theirs, and commit a group for each.
        """
        jobs, self._submitted = self._submitted, []
        self._queue.put(jobs)

    async def close(self) -> None:
        """Complete the queued work and stop."""
        if self._closed:
            return
        self._closed = True
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._checkpoint.close)

    def _run(self) -> None:
        is_running = True
        while is_running:
            group, is_running = self._next_group()
            if group:
                self._commit(group)
                self._loop.call_soon_threadsafe(self._resolve, group)
        self._connection.close()

    def _next_group(self) -> tuple[list[WriteJob], bool]:
        """Take all queued jobs.

        Smaller groups would let the event loop run during the fsync, but then both threads compete
        for the GIL.
        """
        group: list[WriteJob] = []
        jobs = self._queue.get()
        while jobs is not None:
            group += jobs
            if len(group) >= _MAX_GROUP:
                return group, True
            try:
                jobs = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, group: list[WriteJob]) -> None:
        try:
            self._begin()
        except (apsw.Error, StoreError) as error:
            # No job caused it: all fail now, instead of each after its own timeout.
            for job in group:
                job.failure = self._to_error(error)
            return
        try:
            self._transaction(group)
        except Exception as error:  # noqa: BLE001 - any error belongs to the job that caused it
            if len(group) == 1:
                group[0].failure = self._to_error(error)
            else:
                for job in group:
                    self._commit([job])
        self._checkpoint.restart_if_long(self._connection)

    def _begin(self) -> None:
        if file_identity(self._path) != self.identity:
            raise StorageUnwritable(f"{self._path} was replaced")
        self._connection.execute("BEGIN IMMEDIATE")

    def _transaction(self, group: list[WriteJob]) -> None:
        connection = self._connection
        try:
            self._executor.run(connection, group)
            connection.execute("COMMIT")
            self._executor.on_commit(connection)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._executor.on_rollback()
            raise

    def _to_error(self, error: Exception) -> Exception:
        if isinstance(error, apsw.Error | UnicodeDecodeError):
            return to_store_error(error, self._path, self._connection.system_errno)
        return error

    def _resolve(self, group: list[WriteJob]) -> None:
        for job in group:
            if job.future.done():
                continue
            if job.failure is None:
                job.future.set_result(job.result)
            else:
                job.future.set_exception(job.failure)
        self._on_commit()
