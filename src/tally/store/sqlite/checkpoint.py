"""Copies the write-ahead log into the database beside the commits, and keeps the log short.

SQLite syncs the database at the end of a copy only where that has caught up with the log, which
commits go on to lengthen. What was not synced then is synced with the log's new start, for which
writers wait. So a copy is gone after until it has caught up.
"""

import threading
from pathlib import Path

import apsw

from tally.store.sqlite.files import BUSY_TIMEOUT_SECONDS, busy_handler, connect

_COPIED_PAGES = 1_000  # at a time: 4 MB, so that commits beside it do not wait long for the disk
_RESTART_PAGES = 32_000
_LITTLE_PAGES = (
    250  # may be copied while writers wait, and more where the log has grown to twice its length
)
_TRIES = 8
_PATIENCE_SECONDS = 0.1


class Checkpoint:
    """A thread with a connection of its own, woken by the writer's commits."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._connection.set_busy_handler(
            busy_handler(_PATIENCE_SECONDS)
        )  # closing does not wait for another process's writer
        self._wanted = threading.Event()
        self._copying = threading.Lock()
        self._stopped = False
        self._pages = 0  # in the log
        self._copied = 0  # of them, when the copy last caught up with the log
        self._restart_at = _RESTART_PAGES
        self._thread = threading.Thread(
            target=self._run, name="tally-store-checkpoint", daemon=True
        )
        self._thread.start()

    def committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Told by SQLite after each commit how long the log is."""
        if pages < self._copied:  # it has started anew
            self._copied = 0
        self._pages = pages
        if pages - self._copied > (_LITTLE_PAGES if pages > self._restart_at else _COPIED_PAGES):
            self._wanted.set()
        return apsw.SQLITE_OK

    def restart_if_long(self, connection: apsw.Connection) -> None:
        """Under steady writing the log never empties by itself: now and then the writer waits for the little that is left.

        It waits for our own copying only where the log has grown to twice its length, and never for
        another process's reader that stays in one moment, a back-up perhaps: as long as that keeps
        the log from its new start, a short try is made now and then, and the log grows.
        """
        is_due = self._pages > self._restart_at and self._pages - self._copied <= _LITTLE_PAGES
        is_overdue = self._pages > 2 * self._restart_at
        if not (is_due or is_overdue) or not self._copying.acquire(blocking=is_overdue):
            return
        try:
            connection.set_busy_handler(busy_handler(_PATIENCE_SECONDS))
            done = self._copy(connection, apsw.SQLITE_CHECKPOINT_RESTART)
            connection.set_busy_handler(busy_handler(BUSY_TIMEOUT_SECONDS))
        finally:
            self._copying.release()
        self._restart_at = _RESTART_PAGES if done else self._pages + _RESTART_PAGES // 4
        self._pages = self._copied = 0

    def close(self) -> None:
        """Stop, leaving an empty log where nobody else uses it."""
        self._stopped = True
        self._wanted.set()
        self._thread.join()
        self._copy(self._connection, apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.close()

    def _run(self) -> None:
        self._wanted.wait()
        while not self._stopped:
            with self._copying:
                any(
                    self._copy(self._connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
                    for _ in range(_TRIES)
                )
            self._wanted.clear()  # also what was wanted meanwhile: little has come since
            if not self._stopped:
                self._wanted.wait()

    def _copy(self, connection: apsw.Connection, mode: int) -> bool:
        """Whether all was copied.

        If not (another process reads or checkpoints, the disk is full), a later commit tries again.
        """
        try:
            pages, copied = connection.wal_checkpoint(mode=mode)
        except apsw.Error:
            return False
        if copied == pages:
            self._copied = copied
        return copied == pages
