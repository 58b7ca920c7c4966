"""Copies one table and then follows its changes.

A change is applied by reading the item again from the active store and writing what was found. So
the order and number of attempts do not matter, only that the last one comes after the last change:
one task does all of a table's writes, and applies changes that a page of the copy may have missed
after it has written the page.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any, Final

from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.retry import full_jitter
from tally.kit.tasks import cancel_all
from tally.move.pace import Pace
from tally.move.state import TableState, decode_key, encode_key
from tally.store.api import MAX_BATCH_GET, MAX_BATCH_WRITE, BatchGet, BatchWrite, Engine, Scan
from tally.store.batching import chunks
from tally.store.changes import Change
from tally.store.errors import (
    PositionExpired,
    PositionUnknown,
    StoreUnavailable,
    StreamNotFound,
)
from tally.store.schema import Table
from tally.store.store import BatchEntry
from tally.store.values import Item, Key

PAGE_ITEMS: Final = 200
MAX_WAITING: Final = 1_000  # changes that were read and not yet applied
_NO_POSITION: Final = ""  # of a repair, which is no change of the stream
_INITIAL_BACKOFF: Final = 0.2
_MAX_BACKOFF: Final = 10.0

_log = logs.logger()


class TableMover:
    """One table of a move in progress; `run` ends only by an error that no retry corrects."""

    def __init__(
        self, table: Table, state: TableState, active: Engine, passive: Engine, pace: Pace
    ) -> None:
        self.table = table
        self.state = state
        self._active = active
        self._passive = passive
        self._pace = pace
        self._clock: Clock = pace.clock
        self._changes: asyncio.Queue[Change] = asyncio.Queue(MAX_WAITING)
        self._applying = 0
        # A request without a response may still be applied, even after a newer one.
        self.failed_writes = 0
        self._oldest_at = 0.0
        self.active_at = self._clock.monotonic()  # when the last change arrived or was applied

    @property
    def is_idle(self) -> bool:
        """Whether every change that was read is applied."""
        return not self._applying and self._changes.empty()

    @property
    def lag_seconds(self) -> float:
        """Return the age of the oldest change that is being applied; 0 if there is none."""
        return max(0.0, self._clock.time_ns() / 1e9 - self._oldest_at) if self._applying else 0.0

    async def run(self) -> None:
        """Copy and follow; continue after errors of either store."""
        attempts = 0
        while True:
            position = self.state.position
            try:
                await self._run_until_error()
            except (PositionExpired, PositionUnknown, StreamNotFound) as error:
                _log.warning(
                    "Changes were lost; the table is copied again",
                    action="move_restarted",
                    table=self.table.name,
                    error=error,
                )
                await self._restart()
                await self._clock.sleep(_MAX_BACKOFF)
            except StoreUnavailable as error:
                attempts = 1 if self.state.position != position else attempts + 1
                if attempts == 1:
                    _log.warning(
                        "Move interrupted",
                        action="move_interrupted",
                        table=self.table.name,
                        error=error,
                    )
                await self._clock.sleep(full_jitter(attempts, _INITIAL_BACKOFF, _MAX_BACKOFF))

    async def repair(self, keys: Sequence[Key]) -> None:
        """Write the current items at these keys, between changes."""
        for key in keys:
            await self._changes.put(Change("MODIFY", dict(key), _NO_POSITION, 0.0))

    async def _apply(self, keys: Sequence[Key]) -> None:
        """Write the current items at these keys of the active table to the passive table."""
        for chunk in chunks(keys, PAGE_ITEMS):
            found = await self._read(chunk)
            names = self.table.key_names
            existing = {tuple(item[name] for name in names) for item in found}
            absent = [key for key in chunk if tuple(key[name] for name in names) not in existing]
            await self._write(found, absent)

    async def _run_until_error(self) -> None:
        self._changes = asyncio.Queue(MAX_WAITING)
        self._applying = 0
        tasks = {asyncio.create_task(self._read_changes()), asyncio.create_task(self._work())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await cancel_all(tasks)

    async def _read_changes(self) -> None:
        async with aclosing(self._active.changes(self.table, self.state.position)) as changes:
            async for change in changes:
                self.active_at = self._clock.monotonic()
                await self._changes.put(change)

    async def _work(self) -> None:
        if not self.state.is_copied:
            await self._copy()
        while True:
            await self._apply_waiting(await self._changes.get())

    async def _copy(self) -> None:
        state = self.state
        start = decode_key(state.next)
        while True:
            page = await self._active.scan(
                Scan(self.table, limit=PAGE_ITEMS, start=start, consistent=True)
            )
            await self._pace.take(page.scanned)
            await self._write(self._unexpired(page.items), ())
            state.copied += page.scanned
            start = page.next
            state.next = encode_key(start)
            if start is None:
                break
            if not self._changes.empty():
                await self._apply_waiting(self._changes.get_nowait())
        state.is_copied = True

    async def _apply_waiting(self, first: Change) -> None:
        """Apply a change and those that were read since; each key once."""
        changes = [first]
        while not self._changes.empty():
            changes.append(self._changes.get_nowait())
        self._applying = len(changes)
        self._oldest_at = next((change.at for change in changes if change.at), self._oldest_at)
        names = self.table.key_names
        keys = {tuple(change.key[name] for name in names): change.key for change in changes}
        await self._apply([*keys.values()])
        recorded = [change for change in changes if change.position != _NO_POSITION]
        if recorded:
            self.state.position = recorded[-1].position
            self.state.applied += len(recorded)
        self._applying = 0
        self.active_at = self._clock.monotonic()

    async def _restart(self) -> None:
        """Copy the table again: changes were trimmed, or the stream was turned off and on.

        The copy deletes nothing; the comparison before the switch finds items that remained.
        """
        state = self.state
        state.position = await self._active.stream_position(self.table)
        state.is_copied, state.next, state.copied = False, None, 0

    def _unexpired(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that no store has deleted, or is about to."""
        now = self._clock.time_ns() / 1e9
        return [item for item in items if not self.table.is_expired(item, now)]

    async def _read(self, keys: Sequence[Key]) -> list[Item]:
        found: list[Item] = []
        for chunk in chunks(keys, MAX_BATCH_GET):
            unread = tuple(chunk)
            while unread:
                result = await self._active.batch_get(BatchGet(self.table, unread, consistent=True))
                found += self._unexpired(result.items)
                unread = result.unprocessed
        return found

    async def _write(self, puts: Sequence[Item], deletes: Sequence[Key]) -> None:
        entries: list[BatchEntry] = [
            *(("put", item) for item in puts),
            *(("delete", key) for key in deletes),
        ]
        try:
            await self._pace.run_all(
                self._write_batch(batch) for batch in chunks(entries, MAX_BATCH_WRITE)
            )
        except BaseException:
            self.failed_writes += 1
            raise

    async def _write_batch(self, entries: Sequence[BatchEntry]) -> None:
        attempts = 0
        batch: BatchWrite | None = BatchWrite(
            self.table, _values(entries, "put"), _values(entries, "delete")
        )
        while batch is not None:
            batch = (await self._passive.batch_write(batch)).unprocessed
            if batch is not None:
                attempts += 1
                await self._clock.sleep(full_jitter(attempts, _INITIAL_BACKOFF, _MAX_BACKOFF))


def _values(entries: Iterable[BatchEntry], kind: str) -> tuple[Any, ...]:
    return tuple(value for name, value in entries if name == kind)
