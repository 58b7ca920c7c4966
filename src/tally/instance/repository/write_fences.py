"""The table `tally-write-fences`: while it has an item, instances on DynamoDB do not write."""

from dataclasses import dataclass
from typing import ClassVar, Final

from tally.store.access import GetItem, access
from tally.store.errors import TableNotFound
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

FENCE_KEY: Final = {"name": "move"}

WRITE_FENCES = Table(
    "tally-write-fences",
    partition=S("name"),
    attributes=(
        Attribute("name", "S", required=True, about='"move"'),
        Attribute("reason", "S", required=True, about="why instances must not write"),
    ),
)


@dataclass(frozen=True, slots=True)
class WriteFenceRepository:
    """The fence that `tally move` sets."""

    store: Store
    tables: ClassVar = (WRITE_FENCES,)

    @access(
        "Get write fence",
        GetItem(key=FENCE_KEY),
        table=WRITE_FENCES,
        by="system",
        trigger="Writes on DynamoDB",
        frequency="At most every second per instance",
    )
    async def reason(self) -> str | None:
        """Return why writes are paused, or None; a move creates the table before it needs it."""
        try:
            item = await self.store.get(WRITE_FENCES, FENCE_KEY, consistent=True)
        except TableNotFound:
            return None
        return None if item is None else item["reason"]
