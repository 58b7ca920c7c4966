"""Removing all that a match has in a table, however much it is."""

from typing import Final

from tally.store.expressions import F
from tally.store.schema import Table
from tally.store.store import Store
from tally.store.values import Key

PAGE: Final = 500


async def delete_match_items(store: Store, table: Table, match_id: str) -> int:
    """How many items there were, expired ones included.

    A page is read, then deleted, so that they are never held all at once.
    """
    removed = 0
    start: Key | None = None
    while True:
        page = await store.query(
            table,
            F("matchId") == match_id,
            project=table.key_names,
            limit=PAGE,
            start=start,
            consistent=True,
        )
        await store.write_many(table, deletes=page.items, bound=PAGE)
        removed += len(page.items)
        start = page.next
        if start is None:
            return removed
