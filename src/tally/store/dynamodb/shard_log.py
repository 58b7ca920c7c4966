"""The latest records of a shard, shared by all readers of a process.

DynamoDB allows two readers per shard. Readers that are up to date share one: it polls at most once
a second, and keeps the last pages. A reader that is behind reads its own pages until the log
contains what comes next for it. With an exchange, one process polls for all.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tally.store.dynamodb.error_mapping import IteratorExpired
from tally.store.dynamodb.shards import Shard
from tally.store.dynamodb.shared_pages import (
    SHARED_POLL_SECONDS,
    ExchangeUnavailable,
    PageExchange,
    SharedPage,
)
from tally.store.dynamodb.stream_positions import (
    BEGINNING,
    END,
    ShardPointer,
    after_record,
    before_record,
)
from tally.store.dynamodb.stream_requests import (
    DescribedStream,
    RecordPage,
    StreamRecord,
    StreamRequests,
    record_number,
)
from tally.store.errors import PositionExpired

POLL_SECONDS: Final = 1.0
STALE_SECONDS: Final = 60.0  # a log that nobody has polled for this long may be far behind
MAX_KEPT_PAGES: Final = 8  # of up to 1 MB each
# "It might take multiple calls to get to a portion of the shard that contains stream records."
MAX_EMPTY_PAGES: Final = 5


class ShardLog:
    """The records of a shard after the number `lower`, as far as they were polled."""

    def __init__(self, requests: StreamRequests, stream: DescribedStream, shard: Shard) -> None:
        self.requests = requests
        self.stream = stream
        self.shard = shard
        self.end = BEGINNING  # the pointer after the last record that was polled
        self._lower = 0
        self._iterator: str | None = None
        self._has_ended = False
        self._pages: deque[Sequence[StreamRecord]] = deque()
        self._polls = PollTimes()

    def covers(self, pointer: ShardPointer) -> bool:
        """Whether the log is up to date and contains every record after a pointer."""
        return self.is_live and self._lower <= pointer.lower

    @property
    def is_live(self) -> bool:
        """Whether a reader has polled the log recently."""
        return self._iterator is not None and not self._polls.is_stale(self._now())

    def adopt(self, pointer: ShardPointer, iterator: str) -> None:
        """Continue where a reader found no more records, unless the log is up to date or ended."""
        if self.is_live or self._has_ended or pointer == END:
            return
        self._pages.clear()
        self.end, self._lower = pointer, pointer.lower
        self._iterator = iterator
        self._polls.record(self._now())

    def records_after(self, pointer: ShardPointer) -> list[StreamRecord]:
        """Return the polled records after a pointer."""
        if pointer.lower >= self.end.lower:
            return []
        return [
            record
            for page in self._pages
            if record_number(page[-1]) > pointer.lower
            for record in page
            if record_number(record) > pointer.lower
        ]

    def last_number(self, name: str, value: Mapping[str, Any]) -> int:
        """Return the number of the last polled record with this key attribute, or 0."""
        for page in reversed(self._pages):
            for record in reversed(page):
                if record["dynamodb"]["Keys"].get(name) == value:
                    return record_number(record)
        return 0

    async def poll(self, *, now: bool = False) -> None:
        """Get new records, unless that was done within a second and found none; `now` always does.

        At the end of the shard the log ends, and readers read the rest themselves.
        """
        async with self._polls.lock:
            if self._iterator is None or not (now or self._polls.is_due(self._now())):
                return
            exchange = None if now else self.requests.exchange
            if exchange is None or not await self._receive(exchange):
                self._polls.record(self._now())
                await self._poll_service(exchange)

    async def _poll_service(self, exchange: PageExchange | None) -> None:
        if self._iterator is None:
            return
        try:
            page = await self.requests.records(self.stream, self._iterator)
        except (IteratorExpired, PositionExpired):
            self._iterator = None
            return
        lower = str(self.end.lower)
        self._append(page)
        if exchange is not None and (page.records or page.iterator is None):
            with suppress(ExchangeUnavailable):
                await exchange.publish(self._name, SharedPage(lower, page.records, page.iterator))

    async def _receive(self, exchange: PageExchange) -> bool:
        """Append the pages of the process that polls; return False if this one has to."""
        try:
            is_leader = await exchange.lead(self._name)
            # A new leader first takes what its predecessor has published.
            pages = await exchange.pages(self._name)
        except ExchangeUnavailable:
            return False
        for page in pages:
            if int(page.lower) > self.end.lower:
                return False  # pages are missing: the service has them
            records = [each for each in page.records if record_number(each) > self.end.lower]
            if records or page.iterator is None:
                self._append(RecordPage(records, page.iterator))
        if is_leader:
            return False
        self._polls.record(self._now(), SHARED_POLL_SECONDS)
        return True

    @property
    def _name(self) -> str:
        return f"{self.stream.arn}/{self.shard.id}"

    def _append(self, page: RecordPage) -> None:
        self._iterator = page.iterator
        self._has_ended = page.iterator is None
        self._polls.has_more = bool(page.records)
        if not page.records:
            return
        self._pages.append(page.records)
        self.end = after_record(page.records[-1]["dynamodb"]["SequenceNumber"])
        if len(self._pages) > MAX_KEPT_PAGES:
            self._lower = record_number(self._pages.popleft()[-1])

    def _now(self) -> float:
        return self.requests.clock.monotonic()


class PollTimes:
    """When a log was polled, and the lock of its polls."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.has_more = False  # the last poll found records, and more may be waiting
        self._last = float("-inf")
        self._interval = POLL_SECONDS

    def record(self, now: float, interval: float = POLL_SECONDS) -> None:
        self._last, self._interval = now, interval

    def is_due(self, now: float) -> bool:
        return self.has_more or now - self._last >= self._interval

    def is_stale(self, now: float) -> bool:
        return now - self._last >= STALE_SECONDS


class ShardPage(NamedTuple):
    """Records of a shard; `is_last` if the shard ends after them."""

    records: Sequence[StreamRecord]
    is_last: bool = False


class ShardCursor:
    """One reader's place in a shard: reads from the log, or by itself while it is behind."""

    def __init__(self, log: ShardLog, *, exact: bool = True) -> None:
        self._log = log
        self._exact = exact  # trimmed records after the pointer are an error
        self._iterator: tuple[ShardPointer, str] | None = None

    async def read(self, pointer: ShardPointer) -> ShardPage:
        """Return the next records after a pointer."""
        if self._log.covers(pointer):
            await self._log.poll()
            if self._log.covers(pointer):
                self._iterator = None
                return ShardPage(self._log.records_after(pointer))
        page = await self._read_page(pointer)
        if page.iterator is None:
            return ShardPage(page.records, is_last=True)
        if page.records:
            pointer = after_record(page.records[-1]["dynamodb"]["SequenceNumber"])
        else:
            self._log.adopt(pointer, page.iterator)
        self._iterator = pointer, page.iterator
        return ShardPage(page.records)

    async def _read_page(self, pointer: ShardPointer) -> RecordPage:
        requests, stream = self._log.requests, self._log.stream
        iterator = None
        if self._iterator is not None and self._iterator[0] == pointer:
            iterator = self._iterator[1]
        while True:
            iterator = iterator or await requests.iterator(stream, self._log.shard, pointer)
            try:
                return await requests.records(stream, iterator)
            except IteratorExpired:
                iterator = None
            except PositionExpired:  # trimmed since the request for the iterator
                if self._exact or pointer != BEGINNING:
                    raise
                iterator = None


async def find_end(log: ShardLog) -> ShardPointer:
    """Return the pointer after the last record so far.

    The service does not name it. Read from both sides: a busy shard soon has another record, whose
    number names the place before it; the records of a quiet one are soon read. Several empty pages
    in a row are taken for the end.
    """
    for _ in range(MAX_KEPT_PAGES):
        before = log.end
        if log.is_live:
            await log.poll(now=True)
        if log.is_live and log.end == before:
            return before
    requests, stream, shard = log.requests, log.stream, log.shard
    latest: str | None = await requests.latest_iterator(stream, shard)
    oldest: str | None = await requests.iterator(stream, shard, BEGINNING)
    pointer, empty_pages = BEGINNING, 0
    while oldest is not None and latest is not None:
        page = await requests.records(stream, latest)
        if page.records:
            return before_record(page.records[0]["dynamodb"]["SequenceNumber"])
        latest = page.iterator
        page = await requests.records(stream, oldest)
        oldest = page.iterator
        if page.records:
            pointer, empty_pages = after_record(page.records[-1]["dynamodb"]["SequenceNumber"]), 0
            continue
        empty_pages += 1
        if oldest is None:
            return pointer
        if empty_pages == MAX_EMPTY_PAGES:
            log.adopt(pointer, oldest)
            return pointer
    return END
