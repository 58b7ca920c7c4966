"""Starts a DynamoDB endpoint in a thread, with a clock that tests move and snapshots of its data.

    with dynamodb_endpoint() as endpoint:
        client = boto3.client("dynamodb", **endpoint.boto3_arguments)
        …
        saved = endpoint.snapshot()
        endpoint.advance(3600)  # items whose TTL is over are deleted
        endpoint.restore(saved)

The thread has its own event loop, so clients may block. A snapshot is a copy of the database while
no request runs: the endpoint closes its connections and reopens on the same port, and clients
connect again.
"""

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import uvloop

from tally.kit.clock import SystemClock
from tally.kit.server import listen
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.wire.server import serving_store

_MEMORY_DIRECTORY: Final = Path("/dev/shm")  # noqa: S108 - the directory in it is private
_START_SECONDS: Final = 60.0

T = TypeVar("T")


class MovableClock(SystemClock):
    """The time of the machine plus an offset; durations are not affected."""

    def __init__(self) -> None:
        self.offset_ns = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.offset_ns


@dataclass(frozen=True, slots=True)
class EndpointSnapshot:
    """The data of an endpoint, and how far its clock was ahead."""

    folder: Path
    offset_ns: int


class DynamoDBEndpoint:
    """A running endpoint; its methods are called from the thread of the test."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self.clock = MovableClock()
        self._data = folder / "data"
        self._snapshots = folder / "snapshots"
        self._count = 0
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dynamodb-endpoint")
        self._stack = AsyncExitStack()
        self._engine: SqliteEngine

    @property
    def boto3_arguments(self) -> dict[str, str]:
        """Arguments of `boto3.client` and `boto3.resource`: the URL, and any credentials."""
        return {
            "endpoint_url": self.url,
            "region_name": "local",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }

    def advance(self, seconds: float) -> None:
        """Move the clock, and delete the items whose TTL is over then."""
        self.clock.offset_ns += round(seconds * 1e9)
        self._run(self._delete_expired())

    def snapshot(self) -> EndpointSnapshot:
        """Save all tables, items and streams, and the position of the clock."""
        self._count += 1
        folder = self._snapshots / str(self._count)
        self._run(self._close())
        shutil.copytree(self._data, folder)
        self._run(self._open())
        return EndpointSnapshot(folder, self.clock.offset_ns)

    def restore(self, snapshot: EndpointSnapshot) -> None:
        """Replace all data with that of a snapshot; it can be restored any number of times."""
        self._run(self._close())
        shutil.rmtree(self._data)
        shutil.copytree(snapshot.folder, self._data)
        self.clock.offset_ns = snapshot.offset_ns
        self._run(self._open())

    def delete(self, snapshot: EndpointSnapshot) -> None:
        """Free the memory of a snapshot, which cannot be restored any more."""
        shutil.rmtree(snapshot.folder)

    def start(self) -> None:
        """Start the thread and listen on a free port of the loopback interface."""
        self._thread.start()
        self._run(self._open())

    def stop(self) -> None:
        """Stop the server and the thread."""
        try:
            self._run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _open(self) -> None:
        port = urlsplit(self.url).port or 0
        self._engine = await self._stack.enter_async_context(
            open_sqlite(self._data, clock=lambda: self.clock.time_ns() / 1e9)
        )
        self.url = await self._stack.enter_async_context(
            serving_store(self._engine, listen("127.0.0.1", port), clock=self.clock)
        )

    async def _delete_expired(self) -> None:
        for name in await self._engine.list_tables():
            table = await self._engine.describe_table(name)
            if table.ttl is not None:
                await self._engine.sweep_all(table, self.clock.time_ns() / 1e9)

    async def _close(self) -> None:
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_SECONDS)


@contextmanager
def dynamodb_endpoint() -> Iterator[DynamoDBEndpoint]:
    """Run a fresh endpoint, in memory where the system has a file system in memory."""
    parent = _MEMORY_DIRECTORY if _MEMORY_DIRECTORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tally-dynamodb-", dir=parent) as folder:
        endpoint = DynamoDBEndpoint(Path(folder))
        try:
            endpoint.start()
            yield endpoint
        finally:
            endpoint.stop()
