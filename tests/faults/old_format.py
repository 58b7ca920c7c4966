"""The store of a Tally of format 1, in `format_1_store.sql`, and the items that it contains."""

import sqlite3
from pathlib import Path

from tally.store.schema import KEYS_ONLY, GlobalIndex, N, S, Table
from tally.store.sqlite.files import FILE_NAME
from tally.store.values import Item

SESSIONS = Table(
    "sessions",
    partition=S("user"),
    sort=N("number"),
    indexes=(GlobalIndex("by-city", partition=S("city"), sort=N("number"), projection=KEYS_ONLY),),
    ttl="expires",
)
SESSION_COUNT = 60


def session(number: int) -> Item:
    """One of the items; every fifth has no expiry."""
    item: Item = {
        "user": f"user-{number % 7}",
        "number": number,
        "city": f"city-{number % 3}",
        "text": f"{number:03}" * 20,
    }
    if number % 5:
        item["expires"] = 1_800_000_000 + number * 3_600
    return item


def create_old_store(directory: Path) -> None:
    """Create the database in a new directory."""
    directory.mkdir()
    database = sqlite3.connect(directory / FILE_NAME)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(Path(__file__).with_name("format_1_store.sql").read_text())
    database.close()
