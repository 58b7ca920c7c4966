"""Serializes table declarations for the database and for the writer process."""

import json
from collections.abc import Collection
from typing import Any

from tally.store.schema import Index, KeyPart, LocalIndex, Projection, Table


def declare(table: Table, building: Collection[str] = (), stream_id: int = 0) -> str:
    """Serialize the stored part of a table; tables that are stored alike have equal texts.

    `building` names the indexes that are not complete yet. `stream_id` is that of its stream.
    """

    def part(key: KeyPart | None) -> list[str] | None:
        return None if key is None else [key.name, key.type]

    indexes = [
        {
            "name": index.name,
            "partition": part(index.partition),
            "sort": part(index.sort),
            "local": index.local,
            "projection": [index.projection.kind, *index.projection.names],
        }
        for index in table.by_name.values()
    ]
    fields = {
        "name": table.name,
        "partition": part(table.partition),
        "sort": part(table.sort),
        "ttl": table.ttl,
    }
    stream = {"stream": [table.stream, stream_id]} if table.stream else {}
    state = {"building": sorted(building)} if building else {}
    return json.dumps({**fields, "indexes": indexes, **stream, **state})


def read_building(text: str) -> frozenset[str]:
    """Return the names of a table's indexes that are not complete yet."""
    return frozenset(json.loads(text).get("building", ()))


def read_stream_id(text: str) -> int:
    """Return the id of a table's stream, or 0."""
    return int(json.loads(text).get("stream", (None, 0))[1])


def read_declaration(text: str) -> Table:
    """Deserialize a table."""
    stored = json.loads(text)

    def part(pair: Any) -> KeyPart:
        return KeyPart(*pair)

    def index(entry: Any) -> Index | LocalIndex:
        kind, *names = entry["projection"]
        sort = part(entry["sort"]) if entry["sort"] else None
        return Index(
            entry["name"],
            part(entry["partition"]),
            sort,
            Projection(kind, tuple(names)),
            entry["local"],
        )

    return Table(
        stored["name"],
        part(stored["partition"]),
        part(stored["sort"]) if stored["sort"] else None,
        tuple(index(entry) for entry in stored["indexes"]),
        stored["ttl"],
        stream=stored.get("stream", (None, 0))[0],
    )
