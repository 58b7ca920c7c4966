"""Facts about a database as a whole, such as its id, in the SQL table `store_state`."""

import secrets
from typing import Any, Final

import apsw

STORE_ID: Final = "id"
# Set while `tally move` uses the database: see `set_fence` and `set_recording` of the registry.
FENCE: Final = "write fence"
RECORDING: Final = "recording of all tables"
_INCARNATION: Final = "incarnation "
_CREATE_STATE = (
    "CREATE TABLE IF NOT EXISTS store_state (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
    " WITHOUT ROWID"
)


def read_state(connection: apsw.Connection, name: str) -> str | None:
    """Return a value, or None if it was never written."""
    if not connection.table_exists(None, "store_state"):
        return None
    row: Any = connection.execute(
        "SELECT value FROM store_state WHERE name = ?", (name,)
    ).fetchone()
    return None if row is None else str(row[0])


def write_state(connection: apsw.Connection, name: str, value: str) -> None:
    """Write a value inside the caller's transaction."""
    connection.execute(_CREATE_STATE)
    connection.execute("INSERT OR REPLACE INTO store_state VALUES (?, ?)", (name, value))


def delete_state(connection: apsw.Connection, name: str) -> None:
    """Delete a value inside the caller's transaction."""
    connection.execute(_CREATE_STATE)
    connection.execute("DELETE FROM store_state WHERE name = ?", (name,))


def renew_incarnation(connection: apsw.Connection, last: int) -> None:
    """Give a restored database another id inside the caller's transaction.

    The numbers of its change log after `last` will be those of other changes than before.
    """
    previous = read_state(connection, STORE_ID)
    if previous is not None:
        write_state(connection, _INCARNATION + previous, str(last))
        write_state(connection, STORE_ID, secrets.token_hex(16))


def last_of_incarnation(connection: apsw.Connection, prefix: str) -> int:
    """Return the last number of the change log of an earlier incarnation, or -1."""
    if not connection.table_exists(None, "store_state"):
        return -1
    row: Any = connection.execute(
        "SELECT max(CAST(value AS INTEGER)) FROM store_state WHERE substr(name, 1, ?) = ?",
        (len(_INCARNATION) + len(prefix), _INCARNATION + prefix),
    ).fetchone()
    return -1 if row[0] is None else int(row[0])


def create_store_id(connection: apsw.Connection) -> str:
    """Give the database an id inside the caller's transaction, unless it has one; return it."""
    store_id = read_state(connection, STORE_ID)
    if store_id is None:
        store_id = secrets.token_hex(16)
        write_state(connection, STORE_ID, store_id)
    return store_id
