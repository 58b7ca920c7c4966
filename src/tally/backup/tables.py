"""The rows of the scoreboard's tables in PostgreSQL, copied to files and back.

A backup holds rows and no SQL. A restore creates the tables with this program's migrations, up to
the version of the backup, and copies the rows into them. So an archive cannot define a function or
a trigger, let alone run a program.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from tally.backup.errors import BackupFailed
from tally.backup.members import table_member
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.scoreboard.repository.database import open_database_pool
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import (
    RECORDS_TABLE,
    known_migrations,
    known_tables,
    migrate,
)


async def copy_tables_out(dsn: str, files: Path) -> int:
    """Write one snapshot of the tables below `files`, and return the schema's version.

    Raises BackupFailed.
    """
    async with (
        _connection(dsn, "PostgreSQL cannot be read") as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        version = await _schema_version(connection)
        for table in known_tables(version):
            path = files / table_member(table)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            await connection.copy_from_table(table, schema_name="public", output=path)
        return version


async def _schema_version(connection: Any) -> int:
    """Return the last migration, after checking that it has created exactly these tables."""
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    tables, version = {row["tablename"] for row in rows}, 0
    if RECORDS_TABLE in tables:
        tables.remove(RECORDS_TABLE)
        version = await connection.fetchval(
            "SELECT coalesce(max(version), 0)::integer FROM public.scoreboard_migrations"
        )
    if difference := sorted(tables ^ set(known_tables(version))):
        raise BackupFailed(
            "The tables in PostgreSQL are not those of migration"
            f" {version} of this version of Tally: {', '.join(difference)}"
        )
    return version


@asynccontextmanager
async def _connection(dsn: str, problem: str) -> AsyncIterator[Any]:
    """Connect; errors become BackupFailed without their text, which may quote a row."""
    try:
        connection = await asyncpg.connect(dsn)
        try:
            yield connection
        finally:
            await connection.close()
    except asyncpg.PostgresError as error:
        raise BackupFailed(f"{problem}: {type(error).__name__} ({error.sqlstate})") from error
    except asyncpg.InterfaceError as error:
        raise BackupFailed(f"{problem}: {error}") from error


def check_table_members(names: set[str], version: int) -> None:
    """Check that the files are those of the tables at this version; raises BackupFailed."""
    newest = max(migration.version for migration in known_migrations())
    if not 0 <= version <= newest:
        raise BackupFailed(
            f"The backup has migration {version}, and this version of Tally knows {newest}."
            " Run a newer Tally."
        )
    if names != {table_member(table) for table in known_tables(version)}:
        raise BackupFailed(f"The backup does not have the tables of migration {version}")


async def copy_tables_in(dsn: str, files: Path, version: int, clock: Clock) -> None:
    """Create the tables of this version in an empty database, and fill them."""
    async with open_database_pool(dsn, clock, StorageMetrics(Metrics())) as database:
        await migrate(
            database,
            tuple(migration for migration in known_migrations() if migration.version <= version),
        )
    tables = known_tables(version)
    problem = "PostgreSQL rejected the rows of the backup"
    async with _connection(dsn, problem) as connection, connection.transaction():
        # The backup contains the rows that the triggers wrote.
        for table in tables:
            await connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        await connection.execute(f"TRUNCATE {', '.join(tables)}")
        for table in tables:
            source = files / table_member(table)
            await connection.copy_to_table(table, schema_name="public", source=source)
        for table in tables:
            await connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
