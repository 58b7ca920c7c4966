"""The shards of a DynamoDB stream and their lineage.

A shard receives records for some hours; then it is closed, and one or more children continue it.
A child may be read after its parent only, so that the changes of a key stay in order. The service
forgets a shard when all its records are older than 24 hours.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tally.store.dynamodb.stream_positions import BEGINNING, END, ShardPointer, shard_key
from tally.store.errors import PositionExpired


class Shard(NamedTuple):
    """A shard as the service describes it; `parent` is a key, like the keys of `Shards`."""

    id: str
    parent: str | None


Shards = Mapping[str, Shard]


def parse_shards(described: Iterable[Mapping[str, Any]]) -> dict[str, Shard]:
    """Parse the shards of DescribeStream, by their keys."""
    return {
        shard_key(shard["ShardId"]): Shard(
            shard["ShardId"],
            shard_key(shard["ParentShardId"]) if shard.get("ParentShardId") else None,
        )
        for shard in described
    }


def oldest_shards(shards: Shards) -> dict[str, ShardPointer]:
    """Return the shards whose parents the service no longer has."""
    return {key: BEGINNING for key, shard in shards.items() if shard.parent not in shards}


def newest_shards(shards: Shards) -> list[str]:
    """Return the keys of the shards without children."""
    parents = {shard.parent for shard in shards.values()}
    return [key for key in shards if key not in parents]


def has_unread_beginning(pointers: Mapping[str, ShardPointer], shards: Shards) -> bool:
    """Whether the first records of a shard are unread and may be older than 24 hours.

    They are not if the service still has the parent, because it was closed within that time.
    """
    return any(
        pointer == BEGINNING and key in shards and shards[key].parent not in shards
        for key, pointer in pointers.items()
    )


def advance(pointers: Mapping[str, ShardPointer], shards: Shards) -> dict[str, ShardPointer]:
    """Replace shards that were read to their end by their children.

    Raise PositionExpired if the service no longer has a shard: records may have been trimmed.
    """
    found: dict[str, ShardPointer] = {}
    for key, pointer in pointers.items():
        if key not in shards:
            raise PositionExpired("a shard of the position was trimmed")
        children = [child for child, shard in shards.items() if shard.parent == key]
        if pointer == END and children:
            found |= dict.fromkeys(children, BEGINNING)
        else:
            found[key] = pointer
    known = _with_ancestors(found, shards)
    unrelated = {key: BEGINNING for key in oldest_shards(shards) if key not in known}
    return found | unrelated


def _with_ancestors(pointers: Iterable[str], shards: Shards) -> set[str]:
    known: set[str] = set()
    for key in pointers:
        current: str | None = key
        while current is not None and current not in known:
            known.add(current)
            current = shards[current].parent if current in shards else None
    return known
