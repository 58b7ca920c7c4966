"""A log file for a program that draws on the terminal, such as `tally up`.

It counts warnings and errors for the program's status line. Above its maximum size, the file is
renamed and a new one begins, so that a demo that runs for weeks does not fill the disk.
"""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FILE_NAME: Final = "tally.log"
PREVIOUS_SUFFIX: Final = ".1"
MAX_BYTES: Final = 10_000_000
_PROBLEMS: Final = (b'"level":"warning"', b'"level":"error"', b'"level":"critical"')


class LogFile(io.RawIOBase):
    """A file that appends to `tally.log` in a directory; nobody else may read the file."""

    def __init__(self, directory: Path, max_bytes: int = MAX_BYTES) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / FILE_NAME
        self.problems = 0
        self._max_bytes = max_bytes
        self._descriptor = self._open()

    def write(self, lines: "ReadableBuffer") -> int:
        """Append lines, and count those that are warnings or errors."""
        data = bytes(memoryview(lines))
        if os.fstat(self._descriptor).st_size + len(data) > self._max_bytes:
            self._rotate()
        written = os.write(self._descriptor, data)
        self.problems += sum(data[:written].count(problem) for problem in _PROBLEMS)
        return written

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _rotate(self) -> None:
        self.path.replace(self.path.with_name(FILE_NAME + PREVIOUS_SUFFIX))
        os.close(self._descriptor)
        self._descriptor = self._open()
