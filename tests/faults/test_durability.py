"""An acknowledged write is on disk, so it survives a power failure.

A test cannot cut the power, and a killed process leaves its writes to the kernel. So a trace of the
system calls shows that the log was written and synced before each acknowledgement.
"""

import re
import subprocess
from pathlib import Path

import apsw
import msgspec
import pytest

from tally.store.sqlite import open_sqlite
from tests.faults.child_process import started
from tests.faults.peer import player
from tests.needs import need_program, skip_or_fail

WRITES = 20
_LOG_WRITTEN = re.compile(r"pwrite64\(\d+<[^>]*store\.db-wal>")
_LOG_SYNCED = re.compile(r"(fdatasync|fsync)(\(\d+<[^>]*store\.db-wal>\)| resumed>\)) += 0")
_ANSWERED = re.compile(r"\bwrite\(1<")


def events(trace: str) -> str:
    """The trace as letters: w for a write to the log, s for a sync, a for an acknowledgement."""
    kinds = ((_LOG_WRITTEN, "w"), (_LOG_SYNCED, "s"), (_ANSWERED, "a"))
    return "".join(
        letter for line in trace.splitlines() for pattern, letter in kinds if pattern.search(line)
    )


@pytest.fixture
def strace(tmp_path: Path) -> tuple[str, ...]:
    """The command prefix that traces into the file `trace`."""
    program = str(need_program("strace", "strace"))
    tried = subprocess.run(
        [program, "-o", "/dev/null", "true"], check=False, capture_output=True, text=True
    )
    if tried.returncode:
        skip_or_fail(f"processes cannot be traced here: {tried.stderr}")
    return (
        program,
        "-f",
        "-y",
        "-o",
        str(tmp_path / "trace"),
        "-e",
        "trace=pwrite64,write,fdatasync,fsync",
    )


async def test_each_write_is_synced_before_it_is_acknowledged(
    tmp_path: Path, strace: tuple[str, ...]
) -> None:
    async with started("peer", str(tmp_path / "data"), before=strace) as peer:
        await peer.expect("open")
        assert await peer.request("ensure later") == '"done"'
        for number in range(WRITES):
            assert (
                await peer.request(f"put {msgspec.json.encode(player('theirs', number)).decode()}")
                == '"done"'
            )
        assert await peer.end() == 0
    segments = events((tmp_path / "trace").read_text()).split("a")
    # The events before each acknowledgement; the first segment is the opening of the store.
    acknowledged = segments[1 : 1 + 1 + WRITES]
    assert len(acknowledged) == 1 + WRITES
    assert all(re.fullmatch(r"(w+s)+", segment) for segment in acknowledged), acknowledged


def test_the_trace_detects_a_late_sync() -> None:
    """Proves that the test above can fail."""
    written = '7 pwrite64(5</data/store.db-wal>, "x", 4096, 0) = 4096'
    synced = "7 fdatasync(5</data/store.db-wal>) = 0"
    acknowledged = '8 write(1<pipe:[1]>, "done", 4) = 4'
    assert events(f"{written}\n{written}\n{synced}\n{acknowledged}") == "wwsa"
    assert events(f"{written}\n{acknowledged}\n{synced}") == "was"
    assert events("7 fdatasync(5</data/store.db-wal>) = -1 EIO") == ""
    assert events("7 fdatasync(6</data/store.db>) = 0") == ""


async def test_every_connection_syncs_at_each_commit(tmp_path: Path) -> None:
    """Checks SQLite's setting where no trace is available."""
    async with open_sqlite(tmp_path) as engine:
        connections: list[apsw.Connection] = [
            engine._writer._connection,
            engine._writer._checkpoint._connection,
        ]
        for connection in connections:
            assert connection.pragma("journal_mode") == "wal"
            assert connection.pragma("synchronous") == 2
