"""The file format of the SQLite engine: a new revision reads and writes what earlier ones wrote.

A change of the format needs a new `FORMAT_VERSION` and an upgrade of existing databases.
"""

import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pytest

from tally.store.api import BatchPut, Delete, Put, TransactionBatch
from tally.store.schema import GlobalIndex, N, S, Table
from tally.store.sqlite import open_sqlite
from tally.store.sqlite.checksums import PageFile
from tally.store.sqlite.codec import pack
from tally.store.sqlite.files import FORMAT_VERSION, PAGE_BYTES, connect
from tally.store.sqlite.keys import encode_number
from tally.store.values import Item, measure_item
from tests.faults.audit import audit
from tests.store.streams import next_changes

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
    "changes": "sequence stream at pk records",
    "expiry": "name hour prefix low high",
    "generation": "one value",
    "store_state": "name value",
    "index things by_kind": "ipk isk pk sk",
    "rows things": "pk sk item size",
    "shapes": "number name shape",
    "sqlite_sequence": "name seq",
    "tables": "name declaration",
    "tokens": "token fingerprint used",
    "trimmed_streams": "stream sequence",
}
DECLARATION: Final = (
    '{"name": "things", "partition": ["owner", "S"], "sort": ["at", "N"], "ttl": "expires", '
    '"indexes": [{"name": "by_kind", "partition": ["kind", "S"], "sort": null, "local": false, '
    '"projection": ["ALL"]}]}'
)
ENCODED_ITEM: Final = bytes.fromhex(
    "89a26174d6012d312e35a46b696e64a16ba765787069726573ce6afcd9a9a474657874a2c3"
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
    assert read_rows(path, "PRAGMA user_version") == [(6,)]
    names = read_rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    columns = {
        name: " ".join(column[1] for column in read_rows(path, f'PRAGMA table_info("{name}")'))
        for (name,) in names
    }
    assert columns == COLUMNS


def test_declarations_items_and_keys_keep_their_encoding(path: Path) -> None:
    assert read_rows(path, "SELECT * FROM tables") == [("things", DECLARATION)]
    assert read_rows(path, 'SELECT * FROM "rows things"') == [(*ENCODED_KEY, ENCODED_ITEM, 86)]
    assert read_rows(path, "SELECT * FROM expiry") == [
        ("things", 498598, b"ana", ENCODED_KEY[1], ENCODED_KEY[1])
    ]
    assert read_rows(path, 'SELECT * FROM "index things by_kind"') == [(b"k", b"", *ENCODED_KEY)]


async def test_frequent_shapes_keep_their_encoding(tmp_path: Path) -> None:
    """An item of a known shape has neither its names nor what its key contains."""
    logs = Table("logs", partition=S("device"), sort=S("at"))
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(logs)
        for number in range(20):
            at = f"17040672{number:05}#dev-000001_7"
            await engine.put(
                Put(
                    logs,
                    {
                        "device": "dev-000001",
                        "at": at,
                        "batch": at[14:],
                        "n": number,
                        "values": {"a": 1, "b": Decimal("0.5")},
                    },
                )
            )
    path = tmp_path / "store.db"
    assert read_rows(path, "SELECT * FROM shapes") == [
        (
            1,
            "logs",
            (
                '{"attributes":["device","at","batch","n","values"],'
                '"maps":[["values",["a","b"]]],"slices":[["batch",1,14,26]]}'
            ),
        )
    ]
    last = read_rows(path, 'SELECT item FROM "rows logs" ORDER BY sk DESC LIMIT 1')
    assert last == [(bytes.fromhex("9301139201c70301302e35"),)]


async def test_the_change_log_keeps_its_encoding(tmp_path: Path) -> None:
    """A bulk row has the kind, sort key, old and new image of each change, as a flat list."""
    logs = Table("logs", partition=S("device"), sort=S("at"), stream="NEW_AND_OLD_IMAGES")
    async with open_sqlite(tmp_path, lambda: 1_794_955_689.5) as engine:
        await engine.create_table(logs)
        items = [{"device": "d", "at": f"{number}", "n": number} for number in range(2)]
        await engine.transact_each(TransactionBatch(BatchPut(logs, items)))
        await engine.delete(Delete(logs, {"device": "d", "at": "0"}))
    path = tmp_path / "store.db"
    assert read_rows(path, "SELECT declaration FROM tables")[0][0].endswith(
        '"indexes": [], "stream": ["NEW_AND_OLD_IMAGES", 1]}'
    )
    one, two = "c40481a16e00", "c40481a16e01"
    assert read_rows(path, "SELECT * FROM changes") == [
        (2, 1, 1794955689500, b"d", bytes.fromhex(f"9800c40130c0{one}00c40131c0{two}")),
        (3, 1, 1794955689500, b"d", bytes.fromhex(f"9402c40130{one}c0")),
    ]


async def test_a_database_without_a_change_log_is_upgraded(path: Path) -> None:
    """Format 4."""
    with closing(connect(path)) as connection:
        connection.execute("DROP TABLE changes; DROP TABLE trimmed_streams")
        connection.execute("PRAGMA user_version = 4")
    streamed = replace(THINGS, stream="KEYS_ONLY")
    async with open_sqlite(path.parent) as engine:
        await engine.ensure_table(streamed)
        await engine.put(Put(streamed, ITEM | {"at": 7}))
        [change] = await next_changes(engine, streamed, 1)
    assert (change.kind, change.key) == ("INSERT", {"owner": "ana", "at": 7})
    assert len((await audit(path.parent))["things"]) == 2


OLD_TABLE: Final = """
CREATE TABLE tables (name TEXT PRIMARY KEY, declaration TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens (token TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, used REAL NOT NULL)
    WITHOUT ROWID;
CREATE INDEX tokens_used ON tokens (used);
CREATE TABLE generation (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL);
INSERT INTO generation VALUES (1, 1);
CREATE TABLE "rows things" (pk BLOB NOT NULL, sk BLOB NOT NULL, item BLOB NOT NULL,
    size INTEGER NOT NULL, expires REAL, PRIMARY KEY (pk, sk)) WITHOUT ROWID;
CREATE TABLE "index things by_kind" (ipk BLOB NOT NULL, isk BLOB NOT NULL, pk BLOB NOT NULL,
    sk BLOB NOT NULL, PRIMARY KEY (ipk, isk, pk, sk)) WITHOUT ROWID;
"""
OLD_INDEXES: Final = {
    1: 'CREATE INDEX "expires things" ON "rows things" (expires) WHERE expires IS NOT NULL',
    2: 'CREATE INDEX "expires things" ON "rows things" (CAST(expires / 3600 AS INTEGER), pk, sk,'
    " expires) WHERE expires IS NOT NULL",
}
OLD_NOTES: Final = """
CREATE TABLE notes (name TEXT NOT NULL, due REAL NOT NULL, pk BLOB NOT NULL, sk BLOB NOT NULL,
    last_pk BLOB NOT NULL, last_sk BLOB NOT NULL,
    PRIMARY KEY (name, due, pk, sk, last_pk, last_sk)) WITHOUT ROWID
"""


def write_old_database(path: Path, version: int, items: list[Item]) -> None:
    """Write a database as an earlier version did; format 3 had half of the expiries in notes."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(OLD_TABLE)
        connection.execute(OLD_INDEXES[min(version, 2)])
        if version == 3:
            connection.execute(OLD_NOTES)
        connection.execute("PRAGMA application_id = 1413565529")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("INSERT INTO tables VALUES ('things', ?)", (DECLARATION,))
        for number, item in enumerate(items):
            key = item["owner"].encode(), encode_number(item["at"])
            is_noted = version == 3 and number % 2 == 0
            expires = None if is_noted else float(item["expires"])
            connection.execute(
                'INSERT INTO "rows things" VALUES (?, ?, ?, ?, ?)',
                (*key, pack(item), measure_item(item), expires),
            )
            connection.execute(
                'INSERT INTO "index things by_kind" VALUES (?, ?, ?, ?)',
                (item["kind"].encode(), b"", *key),
            )
            if is_noted:
                connection.execute(
                    "INSERT INTO notes VALUES ('things', ?, ?, ?, ?, ?)",
                    (float(item["expires"]), *key, *key),
                )


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_database_of_an_earlier_format_is_upgraded(tmp_path: Path, version: int) -> None:
    items: list[Item] = [
        {"owner": "ana", "at": number, "kind": f"k{number % 3}", "expires": 1_800_000_000 + number}
        for number in range(2_500)
    ]
    write_old_database(tmp_path / "store.db", version, items)
    for _ in range(2):  # the second time there is nothing to do
        assert sorted((await audit(tmp_path))["things"], key=itemgetter("at")) == items
    assert read_rows(tmp_path / "store.db", "PRAGMA user_version") == [(FORMAT_VERSION,)]
    pages = PageFile(tmp_path / "store.db", PAGE_BYTES)
    try:
        assert pages.has_checksums
        assert all(pages.is_intact(number) for number in range(1, pages.pages + 1))
    finally:
        pages.close()
    async with open_sqlite(tmp_path) as engine:
        assert await engine.sweep(THINGS, 1_800_000_000 + 3_600, 1_000) == 1_000
        assert await engine.sweep(THINGS, 1_800_000_000 + 3_600, 9_000) == 1_500
