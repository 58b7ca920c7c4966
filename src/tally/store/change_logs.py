"""The change log of a table as a repository, for the streams of clients.

ReadingLog = change_log(DEVICE_READINGS, "readings", "GET /devices/{hardware_id}/stream")
async for change in ReadingLog(store).follow(position): ...
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tally.store.access import GetRecords, access
from tally.store.changes import Change, ChangePage
from tally.store.schema import Table
from tally.store.store import Store


class ChangeLog(Protocol):
    """Reads the changes of one table."""

    def follow(self, after: str) -> AsyncGenerator[Change, None]:
        """Yield the changes after a position as they happen, without an end."""

    async def read(self, partition: Any, after: str | None, limit: int) -> ChangePage:
        """Return changes of a partition up to now; after None, an empty page at the end."""


def change_log(table: Table, name: str, trigger: str) -> type[Any]:
    """Return the repository class of a table's change log; `name` is the plural of its items."""

    @dataclass(frozen=True, slots=True)
    class TableChangeLog:
        store: Store
        tables: ClassVar = ()
        reads: ClassVar = (table,)

        @access(
            f"Follow {name}",
            GetRecords(),
            table=table,
            trigger=trigger,
            frequency="Continuously while there are streams, once per process",
        )
        async def follow(self, after: str) -> AsyncGenerator[Change, None]:
            async for change in self.store.changes(table, after=after):
                yield change

        @access(
            f"Replay {name}",
            GetRecords(),
            table=table,
            by="user",
            trigger=trigger,
            frequency="Per connection",
        )
        async def read(self, partition: Any, after: str | None, limit: int) -> ChangePage:
            return await self.store.read_changes(table, partition, after=after, limit=limit)

    return TableChangeLog
