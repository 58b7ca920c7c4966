"""The tables in PostgreSQL, as numbered files of SQL, and the runner that brings a database up to the newest.

    await migrate(database)

What is missing is applied in one transaction, together with the note that it was. Several programs
may start at once: one migrates, the others wait for it. A file that was applied must not be changed
afterwards: the note has its checksum. A database that is newer than the program is refused, since
nobody here knows what it means.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

import asyncpg

from tally.errors import Unavailable
from tally.kit import logs
from tally.scoreboard.repository.database import Connection, Database

_log = logs.logger()

# Of our own choosing, the same for every program that migrates this backend: "tallysco" in ASCII.
LOCK: Final = 0x74616C6C7973636F
LOCK_SECONDS: Final = 60.0

_NOTES: Final = """
CREATE TABLE IF NOT EXISTS scoreboard_migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
)
"""


class SchemaMismatch(Unavailable):
    """The database is not one that this program can work on; the message says why."""

    default_code = "schema_refused"


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, what it is called, and its SQL."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known_migrations() -> tuple[Migration, ...]:
    """The files that come with the program, in order."""
    found = []
    for file in resources.files(__name__).iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        if file.name.endswith(".sql"):
            found.append(Migration(int(number), name, file.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.version))


async def migrate(database: Database, migrations: tuple[Migration, ...] | None = None) -> int:
    """Apply what the database lacks, and say how many files that were; SchemaMismatch if it cannot be worked on."""
    migrations = known_migrations() if migrations is None else migrations
    async with database.use("migrate") as connection, connection.transaction():
        # Statements of a migration, and the wait for somebody else's, may take longer than those of
        # a request.
        await connection.execute(f"SET LOCAL statement_timeout = '{LOCK_SECONDS:.0f}s'")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK, timeout=LOCK_SECONDS)
        await connection.execute(_NOTES)
        missing = await _missing(connection, migrations)
        for migration in missing:
            await _apply(connection, migration)
    for migration in missing:
        _log.info(
            "Database migrated", action="migrate", version=migration.version, name=migration.name
        )
    return len(missing)


async def _missing(connection: Connection, migrations: tuple[Migration, ...]) -> list[Migration]:
    """What has not been applied, after a check of what has."""
    applied = {
        row["version"]: row
        for row in await connection.fetch(
            "SELECT version, name, checksum FROM scoreboard_migrations"
        )
    }
    known = {migration.version: migration for migration in migrations}
    if unknown := sorted(set(applied) - set(known)):
        raise SchemaMismatch(
            f"The database is newer than this program: it has the migration {unknown[-1]} ({applied[unknown[-1]]['name']}), "
            f"and this program knows {max(known, default=0)} of them. Run a newer Tally."
        )
    for version, row in sorted(applied.items()):
        if row["checksum"] != known[version].checksum:
            raise SchemaMismatch(
                f"The migration {version} ({row['name']}) was changed after it had been applied: what the database has and what "
                "this program expects may differ. Restore the file, and put the change into a new one."
            )
    return [migration for migration in migrations if migration.version not in applied]


async def _apply(connection: Connection, migration: Migration) -> None:
    try:
        await connection.execute(migration.sql, timeout=LOCK_SECONDS)
    except asyncpg.PostgresError as error:
        if error.sqlstate and error.sqlstate[:2] in {"08", "57"}:
            raise
        raise SchemaMismatch(
            f"The migration {migration.version} ({migration.name}) does not apply: {error}"
        ) from error
    await connection.execute(
        "INSERT INTO scoreboard_migrations (version, name, checksum) VALUES ($1, $2, $3)",
        migration.version,
        migration.name,
        migration.checksum,
    )
