"""Logs are written by a thread: no reader and no disk holds up the program that logs."""

import errno
import io
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tally.kit.log_stream import BackgroundStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WAIT_SECONDS = 10
MANY = 10_000


class Disk(io.RawIOBase):
    """A file that accepts nothing while the disk is full, and a few bytes at a time afterwards."""

    def __init__(self) -> None:
        self.content = b""
        self.is_full = True
        self.refused = threading.Event()

    def write(self, data: "ReadableBuffer") -> int:
        if self.is_full:
            self.refused.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        accepted = bytes(memoryview(data)[:7])
        self.content += accepted
        return len(accepted)


def test_lines_are_written_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as file, BackgroundStream(file) as stream:
        for number in range(1000):
            stream.write(f"line {number}\n")
    assert path.read_text() == "".join(f"line {number}\n" for number in range(1000))


def test_what_a_full_disk_refused_is_written_when_it_has_space() -> None:
    disk = Disk()
    with BackgroundStream(disk) as stream:
        stream.write("one line\n")
        stream.write("another line\n")
        assert disk.refused.wait(WAIT_SECONDS)
        disk.is_full = False
    assert disk.content == b"one line\nanother line\n"


def test_a_pipe_that_nobody_reads_holds_up_nothing_and_memory_stays_bounded() -> None:
    reader, writer = os.pipe()
    with io.FileIO(reader) as unread, io.FileIO(writer, "w") as pipe:
        stream = BackgroundStream(pipe, max_waiting=200_000)
        accepted = write_until_refused(stream, "x" * 999 + "\n")
        assert 200 <= accepted < 400
        received = b""
        while len(received) < accepted * 1000:
            received += unread.read(65_536)
        while write_until_refused(stream, "and again\n", 1) == 0:
            pass  # the thread counts what it wrote a moment after the reader has it
        stream.close()
        received += unread.read(65_536)
        assert received == (b"x" * 999 + b"\n") * accepted + b"and again\n"


def write_until_refused(stream: BackgroundStream, line: str, limit: int = MANY) -> int:
    """Return how many lines the stream accepted, at most `limit`."""
    for accepted in range(limit):
        try:
            stream.write(line)
        except OSError:
            return accepted
    return limit


def test_closing_does_not_wait_for_ever_for_a_reader() -> None:
    reader, writer = os.pipe()
    with io.FileIO(writer, "w") as pipe:
        stream = BackgroundStream(pipe)
        stream.write("x" * 1_000_000)
        closing = threading.Thread(target=stream.close)
        closing.start()
        closing.join(WAIT_SECONDS)
        assert not closing.is_alive()
        os.close(reader)
