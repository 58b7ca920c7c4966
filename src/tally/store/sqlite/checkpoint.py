"""Copies the write-ahead log into the database while commits continue, and limits the log's length.

SQLite syncs the database after a checkpoint only if it has caught up with the log, which commits
keep extending. Otherwise it syncs when the log restarts, while writers wait. So a checkpoint
repeats until it has caught up.
"""

import threading
from pathlib import Path

import apsw

from tally.store.sqlite.files import BUSY_TIMEOUT_SECONDS, busy_handler, connect

_CHECKPOINT_PAGES = (
    2_000  # 8 MB at a time, so that concurrent commits wait only briefly for the disk
)
# 32 MB. While the file grows, every fsync of a commit also writes file-system metadata.
_RESTART_PAGES = 8_000
_MAX_REMAINING_PAGES = 250  # to copy while writers wait, unless the log has doubled
_MAX_PASSES = 8
_BUSY_SECONDS = 0.1


class Checkpoint:
    """A thread with its own connection that checkpoints after commits."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        # Closing does not wait for the writer of another process.
        self._connection.set_busy_handler(busy_handler(_BUSY_SECONDS))
        self._requested = threading.Event()
        self._checkpointing = threading.Lock()
        self._stopped = False
        self._log_pages = 0
        self._copied_pages = 0  # when the checkpoint last caught up
        self._restart_at = _RESTART_PAGES
        self._thread = threading.Thread(
            target=self._run, name="tally-store-checkpoint", daemon=True
        )
        self._thread.start()

    def on_commit(self, _connection: apsw.Connection, _name: str, log_pages: int) -> int:
        """Handle SQLite's WAL hook, which reports the log's length after each commit."""
        if log_pages < self._copied_pages:  # the log was restarted
            self._copied_pages = 0
        self._log_pages = log_pages
        if log_pages - self._copied_pages > (
            _MAX_REMAINING_PAGES if log_pages > self._restart_at else _CHECKPOINT_PAGES
        ):
            self._requested.set()
        return apsw.SQLITE_OK

    def restart_if_long(self, connection: apsw.Connection) -> None:
        """Restart a long log while the writer waits for the few remaining pages.

        Under steady writing the log never empties by itself. The writer waits for a concurrent
        checkpoint only if the log has doubled. It never waits for a long read transaction of
        another process, such as a backup: until that ends, it tries briefly now and then, and the
        log grows.
        """
        is_due = (
            self._log_pages > self._restart_at
            and self._log_pages - self._copied_pages <= _MAX_REMAINING_PAGES
        )
        is_overdue = self._log_pages > 2 * self._restart_at
        if not (is_due or is_overdue) or not self._checkpointing.acquire(blocking=is_overdue):
            return
        try:
            connection.set_busy_handler(busy_handler(_BUSY_SECONDS))
            is_restarted = self._checkpoint(connection, apsw.SQLITE_CHECKPOINT_RESTART)
            connection.set_busy_handler(busy_handler(BUSY_TIMEOUT_SECONDS))
        finally:
            self._checkpointing.release()
        self._restart_at = _RESTART_PAGES if is_restarted else self._log_pages + _RESTART_PAGES // 4
        self._log_pages = self._copied_pages = 0

    def close(self) -> None:
        """Stop, and truncate the log if no other process uses it."""
        self._stopped = True
        self._requested.set()
        self._thread.join()
        self._checkpoint(self._connection, apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.close()

    def _run(self) -> None:
        self._requested.wait()
        while not self._stopped:
            with self._checkpointing:
                any(
                    self._checkpoint(self._connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
                    for _ in range(_MAX_PASSES)
                )
            self._requested.clear()  # including requests during the checkpoint
            if not self._stopped:
                self._requested.wait()

    def _checkpoint(self, connection: apsw.Connection, mode: int) -> bool:
        """Whether all pages were copied.

        If not (another process reads or checkpoints, or the disk is full), a later commit tries
        again.
        """
        try:
            log_pages, copied_pages = connection.wal_checkpoint(mode=mode)
        except apsw.Error:
            return False
        if copied_pages == log_pages:
            self._copied_pages = copied_pages
        return copied_pages == log_pages
