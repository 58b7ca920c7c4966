"""Estimated numbers of items per table, which all open pages share.

DynamoDB reports a count that it updates every six hours. The embedded store counts up to a limit,
because counting a large table would take long.
"""

from dataclasses import dataclass
from typing import Final

from tally.console.cached_loader import CachedLoader
from tally.console.context import ConsoleContext
from tally.errors import TallyError
from tally.store import api
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.errors import StoreError
from tally.store.schema import Table

COUNT_SECONDS: Final = 30.0
MAX_COUNTED: Final = 10_000


@dataclass(frozen=True, slots=True)
class ItemCount:
    """A number of items, or the limit up to which they were counted."""

    items: int
    is_limit: bool = False

    @property
    def text(self) -> str:
        return f"more than {self.items:,}" if self.is_limit else f"{self.items:,}"


class TableCounts:
    """Counts the items of all tables, at most once per `COUNT_SECONDS`."""

    def __init__(self, context: ConsoleContext) -> None:
        self._engine = context.engine
        self._tables = context.catalogue.tables()
        self._loader = CachedLoader(context.clock, COUNT_SECONDS * 0.9, self._load)

    async def get(self) -> dict[str, ItemCount]:
        """Return the counts by table; a table that cannot be counted is left out."""
        return await self._loader.get()

    async def _load(self) -> dict[str, ItemCount]:
        counts: dict[str, ItemCount] = {}
        for table in self._tables:
            try:
                counts[table.name] = await self._count(table)
            except (StoreError, TallyError):
                continue
        return counts

    async def _count(self, table: Table) -> ItemCount:
        if isinstance(self._engine, DynamoDBEngine):
            return ItemCount(await self._engine.estimate_items(table.name))
        count, start = 0, None
        while True:
            operation = api.Scan(table, limit=MAX_COUNTED - count, start=start, count_only=True)
            page = await self._engine.scan(operation)
            count, start = count + page.count, page.next
            if start is None:
                return ItemCount(count)
            if count >= MAX_COUNTED:
                return ItemCount(MAX_COUNTED, is_limit=True)
