"""Follows the streams of tables: all shards in progress, and the children of those that ended."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from tally.store.batching import chunks
from tally.store.changes import START, Change, ChangePage
from tally.store.dynamodb.shard_log import (
    POLL_SECONDS,
    ShardCursor,
    ShardLog,
    ShardPage,
    find_end,
)
from tally.store.dynamodb.shards import (
    advance_shards,
    has_unread_beginning,
    newest_shards,
    oldest_shards,
)
from tally.store.dynamodb.shared_call import SharedCall
from tally.store.dynamodb.shared_pages import SHARED_POLL_SECONDS
from tally.store.dynamodb.stream_positions import (
    END,
    Frontier,
    ShardPointer,
    after_record,
    own_sequence,
    parse_position,
    stream_key,
)
from tally.store.dynamodb.stream_requests import (
    DescribedStream,
    StreamRequests,
    parse_record,
)
from tally.store.encode import to_wire
from tally.store.errors import InvalidRequest, PositionExpired, PositionUnknown, TableNotFound
from tally.store.schema import Table

RETENTION_SECONDS: Final = 24 * 3_600.0  # of the service
MAX_CONCURRENT_SHARDS: Final = 16  # a page has up to 1 MB
# So many rounds without a record, although the shards are known to have more, end a replay.
MAX_EMPTY_ROUNDS: Final = 50
_NOWHERE: Final[Mapping[str, ShardPointer]] = {}


class StreamReader:
    """Follows the streams of a service; the readers of a process share the logs of shards."""

    def __init__(self, requests: StreamRequests) -> None:
        self._requests = requests
        self._logs: dict[str, dict[str, ShardLog]] = {}
        self._descriptions: dict[str, SharedCall[DescribedStream]] = {}
        self._ends: dict[str, SharedCall[str]] = {}

    async def last_position(self, table: Table) -> str:
        """Return the position after the last change so far."""
        call = self._ends.setdefault(table.name, SharedCall(partial(self._find_end, table.name)))
        return await call.get()

    async def follow(self, table: Table, after: str | None) -> AsyncGenerator[Change, None]:
        """Yield the changes of a table after a position as they happen, without an end."""
        async for changes in self._rounds(table, after):
            for change in changes:
                yield change
            if not changes:
                is_shared = self._requests.exchange is not None
                wait = SHARED_POLL_SECONDS if is_shared else POLL_SECONDS
                await self._requests.clock.sleep(wait)

    async def read_partition(
        self, table: Table, partition: Any, after: str | None, limit: int
    ) -> ChangePage:
        """Return up to `limit` changes of a partition after a position and up to now."""
        end = await self.last_position(table)  # also polls the logs, for all readers
        # Before the changes are read: the number of a later change would hide that one.
        last_polled = self._last_polled(table, partition, end)
        if after is None:
            return ChangePage((), end, last_polled)
        found: list[Change] = []
        position, sequence = after, own_sequence(after) or last_polled
        parsed = parse_position(end)
        until = {} if parsed is None else parsed[1]
        async with aclosing(self._rounds(table, after, until)) as rounds:
            async for changes in rounds:
                for change in changes:
                    position = change.position
                    if change.key[table.partition.name] == partition:
                        found.append(change)
                        sequence = change.sequence
                        if len(found) == limit:
                            return ChangePage(tuple(found), position, sequence, is_complete=False)
                if not changes:
                    break
        return ChangePage(tuple(found), position, sequence)

    def _last_polled(self, table: Table, partition: Any, position: str) -> int:
        """Return the number of the last change of a partition that the logs have, or 0.

        Readers of the logs may receive this change later than a client that connects now.
        """
        name = table.partition.name
        key = to_wire(partition)
        logs = [
            log
            for arn, shards in self._logs.items()
            if position.startswith(stream_key(arn))
            for log in shards.values()
        ]
        return max((log.last_number(name, key) for log in logs), default=0)

    async def _rounds(
        self, table: Table, after: str | None, until: Mapping[str, ShardPointer] = _NOWHERE
    ) -> AsyncGenerator[list[Change], None]:
        """Read all shards again and again; a round without changes is at the end of all.

        An empty page does not prove the end of a shard, so reading continues up to `until`.
        """
        position = await self.last_position(table) if after is None else after
        stream = await self._describe(table.name)
        frontier = self._locate(stream, position)
        # The oldest record may be trimmed before it is read: that is no gap after START.
        inexact = {*frontier.pointers} if after == START else set()
        cursors: dict[str, ShardCursor] = {}
        empty_rounds = 0
        while True:
            has_records = has_ended = False
            for keys in chunks(frontier.unfinished, MAX_CONCURRENT_SHARDS):
                for key in keys:
                    cursors.setdefault(
                        key, ShardCursor(self._log(stream, key), exact=key not in inexact)
                    )
                for key, page in await self._read(stream, frontier, cursors, keys):
                    if changes := [*_changes(frontier, key, page)]:
                        has_records = True
                        yield changes
            if frontier.has_ended:
                before = frontier.pointers
                stream = await self._describe_again(stream)
                frontier = _advanced(stream, frontier.pointers)
                has_ended = frontier.pointers != before
            empty_rounds = 0 if has_records or has_ended else empty_rounds + 1
            if empty_rounds and frontier.has_reached(until):
                yield []
            elif empty_rounds == MAX_EMPTY_ROUNDS:
                raise _expired(table.name)

    async def _read(
        self,
        stream: DescribedStream,
        frontier: Frontier,
        cursors: Mapping[str, ShardCursor],
        keys: Sequence[str],
    ) -> list[tuple[str, ShardPage]]:
        pointers = frontier.pointers
        try:
            pages = await asyncio.gather(*(cursors[key].read(pointers[key]) for key in keys))
        except TableNotFound:  # the table, its stream or the shard
            await self._describe_again(stream)
            raise _expired(stream.table) from None
        except PositionExpired:
            raise _expired(stream.table) from None
        except InvalidRequest:  # the service checks the numbers of the position
            raise _unknown(stream.table, "its shard has no such number") from None
        return [*zip(keys, pages, strict=True)]

    def _locate(self, stream: DescribedStream, after: str) -> Frontier:
        if after == START:
            return Frontier(stream_key(stream.arn), oldest_shards(stream.shards))
        parsed = parse_position(after)
        if parsed is None or parsed[0] != stream_key(stream.arn):
            raise _unknown(stream.table, "it is of another stream")
        frontier = _advanced(stream, parsed[1])
        age = self._requests.clock.time_ns() / 1e9 - stream.created_at
        if age > RETENTION_SECONDS and has_unread_beginning(frontier.pointers, stream.shards):
            raise _expired(stream.table)
        return frontier

    async def _describe(self, table: str) -> DescribedStream:
        call = self._descriptions.setdefault(
            table, SharedCall(partial(self._requests.describe, table))
        )
        return await call.get()

    async def _find_end(self, table: str) -> str:
        stream = await self._describe(table)
        pointers: dict[str, ShardPointer] = {}
        for keys in chunks(newest_shards(stream.shards), MAX_CONCURRENT_SHARDS):
            ends = await asyncio.gather(*(find_end(self._log(stream, key)) for key in keys))
            pointers |= zip(keys, ends, strict=True)
        return Frontier(stream_key(stream.arn), pointers).position()

    async def _describe_again(self, stream: DescribedStream) -> DescribedStream:
        found = await self._describe(stream.table)
        if found.arn != stream.arn:
            raise _unknown(stream.table, "the stream was turned off and on")
        return found

    def _log(self, stream: DescribedStream, key: str) -> ShardLog:
        """Return the log of a shard, and forget those of shards that no longer exist."""
        logs = self._logs.get(stream.arn, {})
        if key not in logs:
            log = ShardLog(self._requests, stream, stream.shards[key])
            logs = {known: logs[known] for known in logs if known in stream.shards} | {key: log}
            self._logs[stream.arn] = logs
        return logs[key]


def _changes(frontier: Frontier, key: str, page: ShardPage) -> Iterator[Change]:
    """Yield the changes of a page; the frontier moves along."""
    for record in page.records:
        frontier.move(key, after_record(record["dynamodb"]["SequenceNumber"]))
        yield parse_record(record, frontier.position(key))
    if page.is_last:
        frontier.move(key, END)


def _advanced(stream: DescribedStream, pointers: Mapping[str, ShardPointer]) -> Frontier:
    try:
        return Frontier(stream_key(stream.arn), advance_shards(pointers, stream.shards))
    except PositionExpired:
        raise _expired(stream.table) from None


def _expired(table: str) -> PositionExpired:
    return PositionExpired(
        f"table {table}: changes after the position were trimmed; read the table again, or"
        " continue with the oldest change"
    )


def _unknown(table: str, reason: str) -> PositionUnknown:
    return PositionUnknown(f"table {table}: the position is unknown: {reason}")
