"""Schema migrations of PostgreSQL: numbered SQL files, and the runner that applies them.

    await migrate(database)

Pending migrations and their records are applied in one transaction. Concurrent processes wait for
the one that migrates. An applied file must not change: its checksum is recorded. The runner rejects
a database that is newer than this version of Tally.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

import asyncpg

from tally.errors import Unavailable
from tally.kit import logs
from tally.scoreboard.repository.database import Connection, Database

_log = logs.logger()

# The advisory lock of all processes that migrate this backend: "tallysco" in ASCII.
LOCK: Final = 0x74616C6C7973636F
LOCK_SECONDS: Final = 60.0

RECORDS_TABLE: Final = "scoreboard_migrations"
_CREATED_TABLE: Final = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_DROPPED_TABLE: Final = re.compile(r"^DROP TABLE (\w+)", re.MULTILINE)
_CREATE_RECORDS: Final = """
CREATE TABLE IF NOT EXISTS scoreboard_migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
)
"""


class SchemaMismatch(Unavailable):
    """The database's schema does not fit this version of Tally; the message says why."""

    default_code = "schema_refused"


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration file: its version, name and SQL."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known_migrations() -> tuple[Migration, ...]:
    """Return the migrations of this version of Tally, in order."""
    migrations = []
    for file in resources.files(__name__).iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        if file.name.endswith(".sql"):
            migrations.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(migrations, key=lambda migration: migration.version))


def known_tables(version: int | None = None) -> tuple[str, ...]:
    """Return the tables after the migrations up to a version, without their own records.

    They are in order of creation, so a table follows those that it references.
    """
    tables: list[str] = []
    for migration in known_migrations():
        if version is None or migration.version <= version:
            dropped = _DROPPED_TABLE.findall(migration.sql)
            tables = [table for table in tables if table not in dropped]
            tables += _CREATED_TABLE.findall(migration.sql)
    return tuple(tables)


async def migrate(database: Database, migrations: tuple[Migration, ...] | None = None) -> int:
    """Apply pending migrations and return their number; raises SchemaMismatch."""
    migrations = known_migrations() if migrations is None else migrations
    async with database.use("migrate") as connection, connection.transaction():
        # Migrations, and waiting for those of another process, may exceed a request's time-out.
        await connection.execute(f"SET LOCAL statement_timeout = '{LOCK_SECONDS:.0f}s'")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK, timeout=LOCK_SECONDS)
        await connection.execute(_CREATE_RECORDS)
        pending = await _pending(connection, migrations)
        for migration in pending:
            await _apply(connection, migration)
    for migration in pending:
        _log.info(
            "Database migrated",
            action="database_migrated",
            version=migration.version,
            name=migration.name,
        )
    return len(pending)


async def _pending(connection: Connection, migrations: tuple[Migration, ...]) -> list[Migration]:
    """Verify the applied migrations and return the others."""
    applied = {
        row["version"]: row
        for row in await connection.fetch(
            "SELECT version, name, checksum FROM scoreboard_migrations"
        )
    }
    known = {migration.version: migration for migration in migrations}
    if unknown := sorted(set(applied) - set(known)):
        raise SchemaMismatch(
            "The database is newer than this version of Tally: it has migration"
            f" {unknown[-1]} ({applied[unknown[-1]]['name']}), and this version knows"
            f" {max(known, default=0)}. Run a newer Tally."
        )
    for version, row in sorted(applied.items()):
        if row["checksum"] != known[version].checksum:
            raise SchemaMismatch(
                f"Migration {version} ({row['name']}) was changed after it was applied, so the"
                " database may differ from what this version expects. Restore the file and put"
                " the change into a new migration."
            )
    return [migration for migration in migrations if migration.version not in applied]


async def _apply(connection: Connection, migration: Migration) -> None:
    try:
        await connection.execute(migration.sql, timeout=LOCK_SECONDS)
    except asyncpg.PostgresError as error:
        if error.sqlstate and error.sqlstate[:2] in {"08", "57"}:
            raise
        raise SchemaMismatch(
            f"Migration {migration.version} ({migration.name}) failed: {error}"
        ) from error
    await connection.execute(
        "INSERT INTO scoreboard_migrations (version, name, checksum) VALUES ($1, $2, $3)",
        migration.version,
        migration.name,
        migration.checksum,
    )
