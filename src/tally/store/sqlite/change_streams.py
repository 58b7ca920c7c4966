"""Reads the change log for the consumers of this process.

A consumer that has read everything waits. A commit of this process, or a response of its writer
process, wakes it immediately. Commits of other processes are noticed by SQLite's `data_version`,
which is polled only while a consumer waits; the log is queried only if the version changed.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from typing import Any, Final, NamedTuple

import apsw

from tally.kit.time_slices import SLICE_SECONDS
from tally.store.changes import START, Change, ChangePage, EndedStream
from tally.store.errors import (
    PositionExpired,
    PositionUnknown,
    StoreError,
    StoreUnavailable,
    StreamNotFound,
)
from tally.store.schema import Table
from tally.store.sqlite.change_log import (
    LogRow,
    change_sequence,
    decode_row,
    last_sequence,
    last_stream_sequence,
    read_log,
    read_partition_log,
    split_sequence,
    trimmed_sequence,
)
from tally.store.sqlite.files import to_store_error
from tally.store.sqlite.keys import encode_part
from tally.store.sqlite.layout import Layout, with_ended_stream
from tally.store.sqlite.state import STORE_ID, last_of_incarnation, read_state

POLL_SECONDS: Final = 0.04
_PAGE_ROWS: Final = 16
INCARNATION_LENGTH: Final = 12
_POSITION: Final = re.compile(r"([0-9a-f]{12})\.([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,9})")


class LogPosition(NamedTuple):
    """How far a stream was read: up to this row, or only its first `partial` changes if not 0."""

    sequence: int
    partial: int

    @property
    def first(self) -> int:
        """The first row that was not read completely."""
        return self.sequence if self.partial else self.sequence + 1


class ChangeStreams:
    """The streams of a database and their waiting consumers.

    `connection` returns the read connection, or raises StoreUnavailable once the engine is closed.
    `find` returns the current layout of a table.
    """

    def __init__(
        self, connection: Callable[[], apsw.Connection], find: Callable[[str], Layout]
    ) -> None:
        self._connection = connection
        self._find = find
        self._incarnation = (read_state(connection(), STORE_ID) or "")[:INCARNATION_LENGTH]
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._polling: asyncio.Task[None] | None = None

    def for_ended(self, ended: EndedStream) -> "ChangeStreams":
        """Return a reader that takes a stream which ended for that of its table."""
        stream_id = split_sequence(ended.origin)[0]

        def find(name: str) -> Layout:
            return with_ended_stream(self._find(name), stream_id, ended.view)

        return ChangeStreams(self._connection, find)

    def last_position(self, table: Table) -> str:
        """Return the position after the last change so far."""
        layout = self._layout(table)
        return f"{self._prefix(layout)}{last_sequence(self._connection())}.0"

    def has_changes(self, table: Table, after: str, until: str) -> bool:
        """Whether the log has rows of the table between two positions."""
        layout = self._layout(table)
        position, last = self._parse(layout, after), self._parse(layout, until)
        _, rows = self._read(table, position, 1)
        return any(row.sequence <= last.sequence for row in rows)

    async def follow(self, table: Table, after: str | None) -> AsyncGenerator[Change, None]:
        """Yield the changes of a table after a position as they are committed, without an end."""
        try:
            position = self._parse(self._layout(table), after)
            deadline, has_begun = time.monotonic() + SLICE_SECONDS, False
            while True:
                known = last_sequence(self._connection())
                try:
                    layout, rows = self._read(table, position)
                except PositionExpired:
                    if after != START or has_begun:
                        raise
                    position = self._parse(self._layout(table), after)  # trimmed since
                    continue
                for row in rows:
                    skip = position.partial if row.sequence == position.sequence else 0
                    for change in decode_row(layout, row, self._prefix(layout), skip):
                        yield change
                        if time.monotonic() > deadline:
                            await asyncio.sleep(0)
                            deadline = time.monotonic() + SLICE_SECONDS
                    position = LogPosition(row.sequence, 0)
                    has_begun = True
                if not rows:
                    await self._wait(known)
        except apsw.Error as error:
            raise to_store_error(error, self._connection().filename) from error

    def read_partition(
        self, table: Table, partition: Any, after: str | None, limit: int
    ) -> ChangePage:
        """Return up to `limit` changes of a partition after a position, in one snapshot."""
        try:
            with self._connection() as connection:
                page = self._partition_page(connection, table, partition, after, limit)
        except apsw.Error as error:
            raise to_store_error(error, self._connection().filename) from error
        return page

    def _partition_page(
        self,
        connection: apsw.Connection,
        table: Table,
        partition: Any,
        after: str | None,
        limit: int,
    ) -> ChangePage:
        layout = self._layout(table)
        stream, prefix = layout.stream.id if layout.stream else 0, self._prefix(layout)
        position, last = self._parse(layout, after), last_sequence(connection)
        self._check_kept(connection, layout, position)
        changes: list[Change] = []
        pk = encode_part(table.partition, partition)
        with closing(read_partition_log(connection, stream, pk, position.first)) as rows:
            for row in rows:
                skip = position.partial if row.sequence == position.sequence else 0
                changes.extend(decode_row(layout, row, prefix, skip))
                if len(changes) > limit:
                    page = tuple(changes[:limit])
                    return ChangePage(page, page[-1].position, page[-1].sequence, is_complete=False)
        end = change_sequence(last + 1, 0)
        return ChangePage(tuple(changes), f"{prefix}{last}.0", end)

    def origin(self, table: Table) -> int:
        """Return a number before all sequence numbers of a table's stream."""
        stream = self._layout(table).stream
        return change_sequence(stream.id if stream else 0, 0)

    def end(self, table: Table) -> int:
        """Return a number after all sequence numbers of a table's stream that has ended."""
        layout, connection = self._layout(table), self._connection()
        stream = layout.stream.id if layout.stream else 0
        last = max(
            stream, trimmed_sequence(connection, stream), last_stream_sequence(connection, stream)
        )
        return change_sequence(last + 1, 0)

    def place(self, table: Table, sequence: int) -> str:
        """Return the position after a sequence number; raise PositionExpired if it was trimmed."""
        layout, (row, number) = self._layout(table), split_sequence(sequence)
        position = LogPosition(row, number) if number else LogPosition(row - 1, 0)
        if position.first <= (layout.stream.id if layout.stream else 0):
            raise _trimmed(layout)
        self._check_kept(self._connection(), layout, position)
        text = f"{self._prefix(layout)}{position.sequence}.{position.partial}"
        self._parse(layout, text)
        return text

    def read_page(self, table: Table, after: str, limit: int, max_bytes: int) -> ChangePage:
        """Return changes of all partitions after a position, in one snapshot.

        The page ends after `limit` changes, or with the row that reaches `max_bytes`.
        """
        try:
            with self._connection() as connection:
                page = self._page(connection, table, after, limit, max_bytes)
        except apsw.Error as error:
            raise to_store_error(error, self._connection().filename) from error
        return page

    def _page(
        self, connection: apsw.Connection, table: Table, after: str, limit: int, max_bytes: int
    ) -> ChangePage:
        layout = self._layout(table)
        stream, prefix = layout.stream.id if layout.stream else 0, self._prefix(layout)
        position, last = self._parse(layout, after), last_sequence(connection)
        self._check_kept(connection, layout, position)
        changes: list[Change] = []
        size = 0
        while rows := read_log(connection, stream, position.first, _PAGE_ROWS):
            for row in rows:
                skip = position.partial if row.sequence == position.sequence else 0
                changes.extend(decode_row(layout, row, prefix, skip))
                position = LogPosition(row.sequence, 0)
                size += len(row.records)
                if changes and (len(changes) >= limit or size >= max_bytes):
                    page = tuple(changes[:limit])
                    return ChangePage(page, page[-1].position, page[-1].sequence, is_complete=False)
        return ChangePage(tuple(changes), f"{prefix}{last}.0", change_sequence(last + 1, 0))

    def wake(self) -> None:
        """Wake the consumers for which the log has new rows; called after every commit."""
        if not self._waiting:
            return
        try:
            last = last_sequence(self._connection())
        except (apsw.Error, StoreError) as error:
            self._fail(error)
            return
        for future, known in [*self._waiting.items()]:
            if known < last:
                del self._waiting[future]
                _resolve_waiter(future)

    def close(self) -> None:
        """End the waiting consumers with StoreUnavailable."""
        self._fail(StoreUnavailable("the store is closed"))
        if self._polling is not None:
            self._polling.cancel()

    def _layout(self, table: Table) -> Layout:
        layout = self._find(table.name)
        if layout.stream is None:
            raise StreamNotFound(
                f'table {table.name} has no stream: declare it with stream="NEW_AND_OLD_IMAGES"'
            )
        return layout

    def _prefix(self, layout: Layout) -> str:
        return f"{self._incarnation}.{layout.stream.id if layout.stream else 0}."

    def _parse(self, layout: Layout, after: str | None) -> LogPosition:
        connection = self._connection()
        stream = layout.stream.id if layout.stream else 0
        if after is None:
            return LogPosition(last_sequence(connection), 0)
        if after == START:
            return LogPosition(max(stream, trimmed_sequence(connection, stream)), 0)
        match = _POSITION.fullmatch(after)
        if match is None or int(match[2]) != stream:
            raise _unknown(layout, "it is of another stream")
        position = LogPosition(int(match[3]), int(match[4]))
        last = last_sequence(connection)
        if match[1] != self._incarnation:  # as a restored backup has it, up to its end
            last = last_of_incarnation(connection, match[1])
        if not stream <= position.sequence <= last:
            raise _unknown(layout, "it is of another database")
        return position

    def _read(
        self, table: Table, position: LogPosition, limit: int = _PAGE_ROWS
    ) -> tuple[Layout, list[LogRow]]:
        """Read the next rows, in one snapshot with the end of what was trimmed."""
        layout, connection = self._layout(table), self._connection()
        stream = layout.stream.id if layout.stream else 0
        if stream > position.sequence:
            raise _unknown(layout, "the stream was turned off and on")
        with connection:
            self._check_kept(connection, layout, position)
            rows = read_log(connection, stream, position.first, limit)
        return layout, rows

    def _check_kept(
        self, connection: apsw.Connection, layout: Layout, position: LogPosition
    ) -> None:
        stream = layout.stream.id if layout.stream else 0
        if position.first <= trimmed_sequence(connection, stream):
            raise _trimmed(layout)

    async def _wait(self, known: int) -> None:
        """Return once the log has a row after the number `known`."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = known
        self.wake()  # for a commit since the last read
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    async def _poll(self) -> None:
        """Watch for commits of other processes while consumers wait."""
        version: Any = None
        while self._waiting:
            try:
                found = self._connection().pragma("data_version")
            except (apsw.Error, StoreError) as error:
                self._fail(error)
                return
            if found != version:
                version = found
                self.wake()
            # The time of other processes: no test controls it.
            await asyncio.sleep(POLL_SECONDS)

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(error)


def _resolve_waiter(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _trimmed(layout: Layout) -> PositionExpired:
    return PositionExpired(
        f"table {layout.table.name}: changes after the position were trimmed; read the table"
        " again, or continue with the oldest change"
    )


def _unknown(layout: Layout, reason: str) -> PositionUnknown:
    return PositionUnknown(f"table {layout.table.name}: the position is unknown: {reason}")
