"""What a table has besides the store's declaration: its id, age, billing mode, tags and the like.

The metadata is stored in the same database. A table that Tally itself created has none until it is
first described.
"""

from typing import Any, Protocol

import msgspec

from tally.kit.ids import new_uuid
from tally.store.api import Engine

_PREFIX = "wire table "
ACCOUNT = "000000000000"
REGION = "local"


class StatefulEngine(Engine, Protocol):
    """An engine that also stores facts about its database."""

    async def read_state(self, name: str) -> str | None: ...
    async def write_state(self, name: str, value: str) -> None: ...


class TableMetadata(msgspec.Struct):
    """The stored metadata; `settings` holds what the service only repeats in descriptions."""

    id: str
    created_at: float
    read_units: int = 0
    write_units: int = 0
    settings: dict[str, Any] = {}
    index_units: dict[str, tuple[int, int]] = {}
    tags: dict[str, str] = {}
    stream_label: str | None = None


async def read_metadata(engine: StatefulEngine, name: str, now: float) -> TableMetadata:
    """Return the metadata of a table; create it for a table that has none."""
    text = await engine.read_state(_PREFIX + name)
    if text:
        return msgspec.json.decode(text, type=TableMetadata)
    metadata = new_metadata(now)
    await write_metadata(engine, name, metadata)
    return metadata


async def write_metadata(engine: StatefulEngine, name: str, metadata: TableMetadata | None) -> None:
    """Store the metadata of a table; None removes it."""
    text = "" if metadata is None else msgspec.json.encode(metadata).decode()
    await engine.write_state(_PREFIX + name, text)


def new_metadata(now: float) -> TableMetadata:
    return TableMetadata(new_uuid(), round(now, 3))


def table_arn(name: str) -> str:
    return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"
