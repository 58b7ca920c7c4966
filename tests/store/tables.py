"""The tables that the tests share.

They are created once per engine; each test uses its own keys from `fresh`.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tally.store.api import Engine, Get, Page, Put, Query, Scan, Transaction
from tally.store.expressions import not_exists
from tally.store.schema import ALL, KEYS_ONLY, B, GlobalIndex, LocalIndex, N, S, Table, include
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.values import Item, Key

PLAIN = Table("plain", partition=S("id"))

STRINGS = Table("strings", partition=S("id"), sort=S("at"))
NUMBERS = Table("numbers", partition=S("id"), sort=N("at"))
BINARIES = Table("binaries", partition=S("id"), sort=B("at"))
NUMBERED = Table("numbered", partition=N("id"), sort=N("at"))

PLAYERS = Table(
    "players",
    partition=S("club"),
    sort=S("name"),
    indexes=(
        GlobalIndex("by-team", partition=S("team"), sort=N("points"), projection=ALL),
        GlobalIndex("by-status", partition=S("status"), projection=KEYS_ONLY),
        GlobalIndex(
            "by-day", partition=N("day"), sort=S("city"), projection=include("note", "tags")
        ),
        LocalIndex("by-age", sort=N("age"), projection=ALL),
        LocalIndex("by-city", sort=S("city"), projection=KEYS_ONLY),
        LocalIndex("by-rank", sort=B("rank"), projection=include("note")),
    ),
)

TOKENS = Table(
    "tokens",
    partition=S("id"),
    indexes=(GlobalIndex("by-owner", partition=S("owner"), projection=ALL),),
    ttl="expires",
)

NEVER_MADE = Table(
    "never-made", partition=S("id"), indexes=(GlobalIndex("by-owner", partition=S("owner")),)
)

TABLES = (PLAIN, STRINGS, NUMBERS, BINARIES, NUMBERED, PLAYERS, TOKENS)


def fresh(prefix: str = "") -> str:
    """A new unique string."""
    return f"{prefix}{uuid.uuid4().hex}"


def fresh_number() -> int:
    """A new unique number."""
    return uuid.uuid4().int % 10**20


async def stored(engine: Engine, table: Table, key: Key) -> Item | None:
    """The item at a key."""
    return (await engine.get(Get(table, key, consistent=True))).item


async def all_pages(engine: Engine, operation: Query | Scan, most: int = 100) -> list[Page]:
    """All pages of a query or scan."""
    pages = []
    start = operation.start
    for _ in range(most):
        page = await _page(engine, operation, start)
        pages.append(page)
        start = page.next
        if start is None:
            return pages
    raise AssertionError(f"no end after {most} pages")


async def all_items(engine: Engine, operation: Query | Scan, most: int = 100) -> list[Item]:
    """All items of a query or scan."""
    return [item for page in await all_pages(engine, operation, most) for item in page.items]


async def _page(engine: Engine, operation: Query | Scan, start: Key | None) -> Page:
    if isinstance(operation, Query):
        return await engine.query(_from(operation, start))
    return await engine.scan(_from(operation, start))


def _from(operation: Any, start: Key | None) -> Any:
    fields = {name: getattr(operation, name) for name in operation.__struct_fields__}
    return type(operation)(**{**fields, "start": start})


@asynccontextmanager
async def embedded(
    directory: Path, *tables: Table, writer_process_rate: int | None = None
) -> AsyncIterator[SqliteEngine]:
    """The embedded engine on a new directory, with these tables."""
    async with open_sqlite(directory, writer_process_rate=writer_process_rate) as engine:
        for table in tables:
            await engine.create_table(table)
        yield engine


NEW = not_exists("id")


def once(name: str, by: str) -> Transaction:
    """A transaction that puts a new item into each of two tables.

    The engine writes such ones in bulk.
    """
    return Transaction(
        (
            Put(PLAIN, {"id": name, "by": by}, condition=NEW),
            Put(STRINGS, {"id": name, "at": "x", "by": by}),
        )
    )
