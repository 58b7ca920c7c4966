"""The two databases of a data directory, copied while others write, and made anew from the copies.

SQLite's own back-up reads one moment of the store and lets writers go on. PostgreSQL's `pg_dump`
does the same; it comes from the wheel that the server comes from, and joins the server that runs or
starts it for as long as it takes.
"""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Final

import apsw

from tally.backup.errors import BackupFailed
from tally.embedded.postgres import find_postgres_binaries, open_postgres
from tally.kit.clock import Clock
from tally.store.sqlite.files import connect, to_store_error

DUMP: Final = "postgres.dump"


def copy_store(source: Path, target: Path) -> None:
    """A consistent copy of the store's database as it is at one moment, found sound; all of it is in one file."""
    reading = connect(source)
    try:
        writing = apsw.Connection(str(target))
        try:
            with writing.backup("main", reading, "main") as copying:
                copying.step(-1)
            writing.execute("PRAGMA journal_mode = DELETE")
            found = writing.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            writing.close()
    except apsw.Error as error:
        raise to_store_error(error, source, reading.system_errno) from error
    finally:
        reading.close()
    if found != ("ok",):
        raise BackupFailed(
            f"{source} is damaged, and so would be its back-up: {found[0] if found else 'it cannot be checked'}"
        )


async def dump_postgres(data_dir: Path, target: Path, clock: Clock) -> None:
    """Everything in the PostgreSQL of the data directory, as it is at one moment."""
    async with open_postgres(data_dir, clock) as address:
        await _run(
            "pg_dump", "--format=custom", "--no-password", f"--file={target}", f"--dbname={address}"
        )


async def load_postgres(data_dir: Path, source: Path, clock: Clock) -> None:
    """Make a PostgreSQL in the data directory, with all that was dumped, or nothing."""
    async with open_postgres(data_dir, clock) as address:
        await _run(
            "pg_restore",
            "--exit-on-error",
            "--single-transaction",
            "--no-password",
            f"--dbname={address}",
            str(source),
        )


async def _run(program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs to its end; if it or we fail, neither is left."""
    process = await asyncio.create_subprocess_exec(
        str(find_postgres_binaries() / program),
        *arguments,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env={"LC_ALL": "C", "TZ": "UTC"},
    )
    try:
        _, said = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise BackupFailed(f"{program} failed: {said.decode(errors='replace').strip()}")
