"""PostgreSQL dumps, which archives of format 1 contain.

A dump is SQL that its author chose. It is loaded into a database of its own, as a role without any
rights, and only rows leave that database, read with the same role. So the dump can neither run a
program nor leave a function behind for a superuser to call.
"""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import asyncpg

from tally.backup.errors import BackupFailed
from tally.backup.tables import copy_tables_out
from tally.embedded.postgres import find_postgres_binaries

# The name of both the role and the database.
IMPORT_NAME: Final = "tally_import"


async def extract_dump(dsn: str, dump: Path, files: Path) -> int:
    """Write the rows of the dump's tables below `files`, and return the schema's version."""
    async with import_database(dsn) as restricted:
        await _restore(restricted, dump)
        return await copy_tables_out(restricted, files)


@asynccontextmanager
async def import_database(dsn: str) -> AsyncIterator[str]:
    """Create a database whose owner has no rights outside it; drop both at the end."""
    owner = await asyncpg.connect(dsn)
    try:
        await owner.execute(
            f"CREATE ROLE {IMPORT_NAME} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION"
        )
        await owner.execute(f"CREATE DATABASE {IMPORT_NAME} OWNER {IMPORT_NAME}")
        yield dsn.replace("//tally@/postgres?", f"//{IMPORT_NAME}@/{IMPORT_NAME}?", 1)
        await owner.execute(f"DROP DATABASE {IMPORT_NAME} WITH (FORCE)")
        await owner.execute(f"DROP ROLE {IMPORT_NAME}")
    finally:
        await owner.close()


async def _restore(dsn: str, dump: Path) -> None:
    """Run pg_restore; kill it if this task is cancelled."""
    process = await asyncio.create_subprocess_exec(
        str(find_postgres_binaries() / "pg_restore"),
        "--exit-on-error",
        "--single-transaction",
        "--no-owner",
        "--no-privileges",
        "--no-password",
        f"--dbname={dsn}",
        str(dump),
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
        raise BackupFailed(f"pg_restore failed: {errors.decode(errors='replace').strip()}")
