"""Helpers of the stream tests: tables with each view, reading up to now, and replaying changes."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, get_args

from tally.store.api import Engine
from tally.store.changes import START, Change
from tally.store.schema import N, S, StreamView, Table
from tally.store.values import Item

VIEWS: tuple[StreamView, ...] = get_args(StreamView)
WAIT_SECONDS = 20.0


def streamed(view: StreamView = "NEW_AND_OLD_IMAGES", name: str = "streamed") -> Table:
    """A table of strings with a stream."""
    return Table(name, partition=S("id"), sort=S("at"), ttl="expires", stream=view)


BOTH = streamed()
NUMBERED_STREAM = Table(
    "numbered-stream", partition=S("id"), sort=N("at"), stream="NEW_AND_OLD_IMAGES"
)


async def next_changes(
    engine: Engine, table: Table, count: int, after: str | None = START
) -> list[Change]:
    """The next changes; fails if they do not come in time."""
    found: list[Change] = []
    async with asyncio.timeout(WAIT_SECONDS), aclosing(engine.changes(table, after)) as changes:
        async for change in changes:
            found.append(change)
            if len(found) == count:
                break
    return found


async def changes_until(
    engine: Engine, table: Table, last: Mapping[str, Any], after: str | None = START
) -> list[Change]:
    """All changes up to that of the item with this key, which is the last one."""
    return [change async for change in iterate_until(engine, table, last, after)]


async def iterate_until(
    engine: Engine, table: Table, last: Mapping[str, Any], after: str | None = START
) -> AsyncIterator[Change]:
    async with asyncio.timeout(WAIT_SECONDS), aclosing(engine.changes(table, after)) as changes:
        async for change in changes:
            yield change
            if change.key == last:
                return


def key_of(table: Table, item: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(item[name] for name in table.key_names)


def replay(table: Table, changes: Iterable[Change]) -> dict[tuple[Any, ...], Item]:
    """Apply changes to an empty table; fails if an image does not fit the state before it."""
    items: dict[tuple[Any, ...], Item] = {}
    for change in changes:
        key = key_of(table, change.key)
        assert change.old == items.get(key), f"{change} follows {items.get(key)}"
        expected = "INSERT" if key not in items else "REMOVE" if change.new is None else "MODIFY"
        assert change.kind == expected
        if change.new is None:
            del items[key]
        else:
            items[key] = change.new
    return items
