"""Online copies of the store and of PostgreSQL, and the restore of PostgreSQL.

SQLite's backup API copies one snapshot of the store while writers continue. `pg_dump`, from the
same wheel as the server, does the same for PostgreSQL; it uses the running server or starts one.
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
    """Copy one snapshot of the store's database into a single file and check its integrity."""
    reader = connect(source)
    try:
        writer = apsw.Connection(str(target))
        try:
            with writer.backup("main", reader, "main") as copy:
                copy.step(-1)
            writer.execute("PRAGMA journal_mode = DELETE")
            result = writer.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            writer.close()
    except apsw.Error as error:
        raise to_store_error(error, source, reader.system_errno) from error
    finally:
        reader.close()
    if result != ("ok",):
        reason = result[0] if result else "the integrity check returned no result"
        raise BackupFailed(f"{source} is damaged and cannot be backed up: {reason}")


async def dump_postgres(data_dir: Path, target: Path, clock: Clock) -> None:
    """Dump one snapshot of the data directory's PostgreSQL."""
    async with open_postgres(data_dir, clock) as dsn:
        await _run(
            "pg_dump", "--format=custom", "--no-password", f"--file={target}", f"--dbname={dsn}"
        )


async def load_postgres(data_dir: Path, source: Path, clock: Clock) -> None:
    """Create a PostgreSQL in the data directory and load a dump in one transaction."""
    async with open_postgres(data_dir, clock) as dsn:
        await _run(
            "pg_restore",
            "--exit-on-error",
            "--single-transaction",
            "--no-password",
            f"--dbname={dsn}",
            str(source),
        )


async def _run(program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs; kill it if this task is cancelled."""
    process = await asyncio.create_subprocess_exec(
        str(find_postgres_binaries() / program),
        *arguments,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env={"LC_ALL": "C", "TZ": "UTC"},
    )
    try:
        _, errors = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise BackupFailed(f"{program} failed: {errors.decode(errors='replace').strip()}")
