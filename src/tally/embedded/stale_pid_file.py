"""Removal of the files that a killed PostgreSQL leaves behind.

PostgreSQL records its process id in `postmaster.pid` and does not start while a process with that
id exists, even an unrelated one that reuses it. The file is removed before each start, unless the
process is a PostgreSQL on the same files that was started manually. No process is ever signalled.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tally.embedded.server_directory import EmbeddedServerError

# The start time that PostgreSQL records may differ from the kernel's by this much.
START_TOLERANCE_SECONDS: Final = 10.0


def remove_stale_pid_file(files: Path, sockets: Path) -> None:
    """Remove the pid file and sockets of a dead server; raises EmbeddedServerError if it lives."""
    pid_file = files / "postmaster.pid"
    if pid_file.exists():
        lines = pid_file.read_text(errors="replace").splitlines()
        process_id = int(lines[0]) if lines and lines[0].strip().lstrip("-").isdigit() else 0
        started_at = int(lines[2]) if len(lines) > 2 and lines[2].strip().isdigit() else 0
        if process_id > 0 and is_postgres_on(process_id, files, started_at):
            raise EmbeddedServerError(
                f"Another PostgreSQL (process {process_id}) is running on {files}; stop it first"
            )
        pid_file.unlink()
    for socket in sockets.glob(".s.PGSQL.*"):
        socket.unlink()


def is_postgres_on(process_id: int, files: Path, started_at: int) -> bool:
    """Return whether the process is the PostgreSQL started on these files at that time."""
    process = Path("/proc") / str(process_id)
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")
        working_directory = (process / "cwd").readlink()
        # The fields follow the program's name, which may contain spaces and parentheses.
        ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])
        boot_time = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime")
        )
    except (OSError, ValueError, StopIteration):
        return False
    is_postgres = Path(os.fsdecode(command[0])).name == "postgres"
    actual_start = boot_time + ticks / os.sysconf("SC_CLK_TCK")
    is_same_start = abs(actual_start - started_at) <= START_TOLERANCE_SECONDS
    is_same_directory = False
    with suppress(OSError):
        is_same_directory = working_directory.samefile(files)
    return is_postgres and is_same_directory and is_same_start
