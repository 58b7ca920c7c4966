"""The file format of the SQLite engine: a new revision reads and writes what earlier ones wrote.

A change of the format needs a new `FORMAT_VERSION` and an upgrade of existing databases.
"""

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from tally.store.api import Put
from tally.store.schema import GlobalIndex, N, S, Table
from tally.store.sqlite import open_sqlite

THINGS: Final = Table(
    "things",
    partition=S("owner"),
    sort=N("at"),
    indexes=(GlobalIndex("by_kind", partition=S("kind")),),
    ttl="expires",
)
ITEM: Final[dict[str, Any]] = {
    "owner": "ana",
    "at": Decimal("-1.5"),
    "kind": "k",
    "expires": 1794955689,
    "text": "é",
    "bytes": b"\x00\xff",
    "list": [1, "a", None, True],
    "map": {"x": Decimal("0.1")},
    "names": {"a"},
    "numbers": frozenset({7}),
}
COLUMNS: Final = {
    "generation": "one value",
    "index things by_kind": "ipk isk pk sk",
    "notes": "name due pk sk last_pk last_sk",
    "rows things": "pk sk item size expires",
    "tables": "name declaration",
    "tokens": "token fingerprint used",
}
DECLARATION: Final = (
    '{"name": "things", "partition": ["owner", "S"], "sort": ["at", "N"], "ttl": "expires", '
    '"indexes": [{"name": "by_kind", "partition": ["kind", "S"], "sort": null, "local": false, '
    '"projection": ["ALL"]}]}'
)
ENCODED_ITEM: Final = bytes.fromhex(
    "8aa56f776e6572a3616e61a26174d6012d312e35a46b696e64a16ba765787069726573ce6afcd9a9a474657874a2c3"
    "a9a56279746573c40200ffa46c6973749401a161c0c3a36d617081a178c70301302e31a56e616d6573c7030291a161"
    "a76e756d62657273d5029107"
)
ENCODED_KEY: Final = (b"ana", bytes.fromhex("7f7dcecaff"))


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A database with one table and one item."""
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(THINGS)
        await engine.put(Put(THINGS, ITEM))
    return tmp_path / "store.db"


def read_rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def test_the_database_keeps_its_tables_and_columns(path: Path) -> None:
    assert read_rows(path, "PRAGMA application_id") == [(1413565529,)]
    assert read_rows(path, "PRAGMA user_version") == [(3,)]
    names = read_rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    columns = {
        name: " ".join(column[1] for column in read_rows(path, f'PRAGMA table_info("{name}")'))
        for (name,) in names
    }
    assert columns == COLUMNS


def test_declarations_items_and_keys_keep_their_encoding(path: Path) -> None:
    assert read_rows(path, "SELECT * FROM tables") == [("things", DECLARATION)]
    assert read_rows(path, 'SELECT * FROM "rows things"') == [
        (*ENCODED_KEY, ENCODED_ITEM, 86, 1794955689.0)
    ]
    assert read_rows(path, 'SELECT * FROM "index things by_kind"') == [(b"k", b"", *ENCODED_KEY)]
