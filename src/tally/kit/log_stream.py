"""A stream whose lines a thread writes, so that no request waits for the reader of the logs.

A pipe that nobody reads, such as that of a supervisor in trouble, would otherwise stop the server
at the first line that does not fit into it. The lines wait in memory instead, up to a limit.
"""

import errno
import io
import threading
import time
from typing import Final

MAX_WAITING: Final = 4_000_000
# Lines of this time are written together: a write for each line costs more than the line.
GATHER_SECONDS: Final = 0.01
RETRY_SECONDS: Final = 0.1
CLOSE_SECONDS: Final = 2.0


class BackgroundStream(io.TextIOBase):
    """Accepts lines at once, and writes them to an unbuffered file in a thread.

    What the file does not accept, as on a full disk, is written again later. `write` raises
    OSError when more than `max_waiting` bytes would wait; the line is then lost.
    """

    def __init__(self, file: io.RawIOBase, max_waiting: int = MAX_WAITING) -> None:
        self._file = file
        self._max_waiting = max_waiting
        self._lines: list[bytes] = []
        self._waiting = 0
        self._changed = threading.Condition()
        self._closing = False
        # A daemon: a write that never ends must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="log-stream", daemon=True)
        self._thread.start()

    def isatty(self) -> bool:
        return self._file.isatty()

    def write(self, text: str) -> int:
        line = text.encode(errors="replace")
        with self._changed:
            if self._waiting + len(line) > self._max_waiting:
                raise OSError(errno.ENOBUFS, "Too many log lines wait for their reader")
            self._lines.append(line)
            self._waiting += len(line)
            if len(self._lines) == 1:
                self._changed.notify()
        return len(text)

    def close(self) -> None:
        """Write what waits, for at most two seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)
        super().close()

    def _run(self) -> None:
        while lines := self._take():
            if not self._write_all(memoryview(b"".join(lines))):
                return

    def _write_all(self, data: memoryview) -> bool:
        """Write until the file has accepted all; return False if the stream is closed before."""
        while data:
            is_last_try = self._closing
            written = self._try_to_write(data)
            data = data[written:]
            with self._changed:
                self._waiting -= written
                if not written and is_last_try:
                    return False
                if not written:
                    self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)
        return True

    def _take(self) -> list[bytes]:
        """Wait for lines; return none when the stream is closed and none are left."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closing)
        if not self._closing:
            time.sleep(GATHER_SECONDS)
        with self._changed:
            lines, self._lines = self._lines, []
        return lines

    def _try_to_write(self, data: memoryview) -> int:
        try:
            return self._file.write(data) or 0  # None: the file would block
        except (OSError, ValueError):  # ValueError: the file is closed
            return 0
