"""Hides tables of an engine, which operations of the protocol then do not find.

Every operation looks its tables up by name before it reads them, so the look-ups are enough.
"""

from typing import Any

from tally.store.errors import TableNotFound
from tally.store.schema import Table
from tally.store.wire.table_metadata import StatefulEngine


class VisibleTables:
    """An engine without its hidden tables; it delegates everything but the look-ups."""

    def __init__(self, engine: StatefulEngine, hidden: frozenset[str]) -> None:
        self._engine = engine
        self._hidden = hidden

    async def list_tables(self) -> list[str]:
        return [name for name in await self._engine.list_tables() if name not in self._hidden]

    async def describe_table(self, name: str) -> Table:
        if name in self._hidden:
            raise TableNotFound(f"table {name} does not exist")
        return await self._engine.describe_table(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
