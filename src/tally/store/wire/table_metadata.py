"""What a table has besides the store's declaration: its id, age, billing mode, tags and the like.

The metadata is stored in the same database. A table that Tally itself created has none until it is
first described.
"""

from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from tally.kit.ids import new_uuid
from tally.store.api import Engine
from tally.store.changes import EndedStream
from tally.store.schema import Table
from tally.store.sqlite.change_streams import ChangeStreams

_PREFIX = "wire table "
ACCOUNT = "000000000000"
REGION = "local"
DISABLED_STREAM_SECONDS = 24 * 3600
_MAX_DISABLED = 100


class StatefulEngine(Engine, Protocol):
    """An engine that also stores facts about its database, and reads whole streams by page."""

    async def read_state(self, name: str) -> str | None: ...
    async def write_state(self, name: str, value: str) -> None: ...
    def stream_reader(self, ended: EndedStream | None = None) -> ChangeStreams: ...


class DisabledStream(EndedStream, frozen=True):
    """A stream that was disabled at a time, in epoch seconds."""

    label: str
    disabled_at: float


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
    disabled_streams: list[DisabledStream] = []


async def read_metadata(engine: StatefulEngine, name: str, now: float) -> TableMetadata:
    """Return the metadata of a table; create it for a table that has none."""
    text = await engine.read_state(_PREFIX + name)
    if text:
        return msgspec.json.decode(text, type=TableMetadata)
    metadata = new_metadata(now)
    await write_metadata(engine, name, metadata)
    return metadata


async def stream_metadata(engine: StatefulEngine, table: Table, now: float) -> TableMetadata:
    """Return the metadata of a table; a stream that has no label yet gets one."""
    metadata = await read_metadata(engine, table.name, now)
    if table.stream is not None and metadata.stream_label is None:
        metadata.stream_label = new_stream_label(now)
        await write_metadata(engine, table.name, metadata)
    return metadata


async def write_metadata(engine: StatefulEngine, name: str, metadata: TableMetadata | None) -> None:
    """Store the metadata of a table; None removes it."""
    text = "" if metadata is None else msgspec.json.encode(metadata).decode()
    await engine.write_state(_PREFIX + name, text)


def new_metadata(now: float) -> TableMetadata:
    return TableMetadata(new_uuid(), round(now, 3))


def readable_streams(metadata: TableMetadata, now: float) -> list[DisabledStream]:
    """Return the disabled streams of a table that can still be read, oldest first."""
    kept = [
        stream
        for stream in metadata.disabled_streams
        if now - stream.disabled_at < DISABLED_STREAM_SECONDS
    ]
    return kept[-_MAX_DISABLED:]


def new_stream_label(now: float) -> str:
    """Return the time as labels of streams contain it, in milliseconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


def table_arn(name: str) -> str:
    return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"
