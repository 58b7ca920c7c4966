"""What a PostgreSQL that was killed leaves behind, and how to tell it from one that runs.

PostgreSQL notes its process number in `postmaster.pid`, and refuses to start while a process of
that number lives, whoever it may have become since. So the note is removed first, unless the
process is a PostgreSQL on these very files that somebody started by hand. No process is ever
touched.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tally.embedded.server_directory import EmbeddedServerError

# How far the start that PostgreSQL notes may be from the start that the kernel knows, in seconds.
START_TOLERANCE: Final = 10.0


def remove_stale_pid_file(files: Path, socket_directory: Path) -> None:
    """Remove the notes and sockets of a server that is gone; EmbeddedServerError if it is not gone at all."""
    note = files / "postmaster.pid"
    if note.exists():
        lines = note.read_text(errors="replace").splitlines()
        process_id = int(lines[0]) if lines and lines[0].strip().lstrip("-").isdigit() else 0
        started_at = int(lines[2]) if len(lines) > 2 and lines[2].strip().isdigit() else 0
        if process_id > 0 and is_server(process_id, files, started_at):
            raise EmbeddedServerError(
                f"Another PostgreSQL, process {process_id}, runs on {files}: stop it first"
            )
        note.unlink()
    for socket in socket_directory.glob(".s.PGSQL.*"):
        socket.unlink()


def is_server(process_id: int, files: Path, started_at: int) -> bool:
    """Whether the process is the PostgreSQL that was started on these files at that time."""
    process = Path("/proc") / str(process_id)
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        works_in = (process / "cwd").readlink()
        # The fields after the name of the program, which may itself have spaces and brackets.
        ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])
        boot = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime")
        )
    except (OSError, ValueError, StopIteration):
        return False
    is_postgres = Path(os.fsdecode(words[0])).name == "postgres"
    is_of_that_time = abs(boot + ticks / os.sysconf("SC_CLK_TCK") - started_at) <= START_TOLERANCE
    is_here = False
    with suppress(OSError):
        is_here = works_in.samefile(files)
    return is_postgres and is_here and is_of_that_time
