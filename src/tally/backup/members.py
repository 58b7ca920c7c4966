"""The files that a backup may contain, by name and size; an archive with any other is refused."""

import re
from functools import cache
from typing import Final

from tally.scoreboard.repository.migrations import known_tables
from tally.store.sqlite.files import FILE_NAME as STORE_FILE

# PostgreSQL in format 1: a dump, which contains SQL. Format 2 has one file of rows per table.
DUMP: Final = "postgres.dump"
TABLES_DIRECTORY: Final = "postgres"
_DATABASE_BYTES: Final = 2**44
# Patterns of file names, and the largest size of each.
_OTHER_FILES: Final = {
    # Keys and tokens of the installation.
    re.compile(r"[a-z][a-z0-9-]{0,60}\.(?:key|token)"): 65_536,
    # The simulators of `tally up`.
    re.compile(r"demo/[a-z][a-z0-9-]{0,60}\.(?:json|key|pem|p8)"): 2**28,
    # Format 1 contains console sessions; format 2 does not, so that ended sessions do not return.
    re.compile(r"console/[a-z0-9-]{1,100}\.json"): 2**24,
}


def max_member_bytes(name: str) -> int | None:
    """Return the largest size of a file with this name, or None if it is not known."""
    if name in _database_names():
        return _DATABASE_BYTES
    return next((size for kind, size in _OTHER_FILES.items() if kind.fullmatch(name)), None)


@cache
def _database_names() -> frozenset[str]:
    return frozenset({STORE_FILE, DUMP, *(table_member(table) for table in known_tables())})


def table_member(table: str) -> str:
    return f"{TABLES_DIRECTORY}/{table}.copy"
