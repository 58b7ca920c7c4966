"""A separate process that runs bulk writes under load, to avoid contention for the GIL.

The writer thread shares the GIL with the event loop. Under load both wait for each other at every
statement, and a commit takes three times as long as its work. The process starts when the write
rate justifies it, ends with the engine, and needs about 40 MB.
"""

import asyncio
import logging
import os
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from contextlib import ExitStack, suppress
from contextvars import Context
from pathlib import Path
from typing import Any

from tally.store.errors import OutcomeUnknown
from tally.store.sqlite.bulk import PreparedBatch
from tally.store.sqlite.ipc import MessageConnection, decode_response, encode_request
from tally.store.sqlite.writer_thread import WriterThread

_RESTART_SECONDS = 30.0  # after a failed start or an unexpected end
_END_SECONDS = 20.0
_MIN_TRANSACTIONS = 8  # smaller batches use the process only while it is busy
_LOST = "the writer process ended: the write may or may not have been stored"

_log = logging.getLogger(__name__)


class WriterProcess:
    """The process and its pending requests."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self._connection = MessageConnection(self._on_message, self._on_end)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._ended = asyncio.Event()
        self._is_closing = False
        self._process: Process | None = None

    async def start(self, path: Path, identity: tuple[int, int]) -> None:
        """Start the process for this file; it sets `ready` a moment later."""
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as on_failure:
            on_failure.callback(ours.close)
            await asyncio.get_running_loop().create_connection(lambda: self._connection, sock=ours)
            on_failure.pop_all()
            on_failure.callback(self._abort)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "tally.store.sqlite.writer_process_main",
                *map(str, (path, *identity, theirs.fileno())),
                # The same modules as in this process.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=(theirs.fileno(),),
                stdin=DEVNULL,
                stdout=DEVNULL,
                start_new_session=True,  # only this process handles Ctrl-C
            )
            on_failure.pop_all()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def is_busy(self) -> bool:
        """Whether requests are pending."""
        return bool(self._pending)

    def submit(self, batch: PreparedBatch) -> "asyncio.Future[Any]":
        """Send the batch; the future resolves once it is durable.

        It fails with OutcomeUnknown if the process ends first.
        """
        self._number += 1
        self._connection.send(encode_request(self._number, batch))
        future = self._pending[self._number] = asyncio.get_running_loop().create_future()
        return future

    async def close(self) -> None:
        """Let the process complete its requests and end."""
        self._is_closing = True
        self.ready.clear()
        if self._process is None:
            return
        self._connection.end_sending()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._ended.wait()
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        finally:
            self._connection.close()

    def _abort(self) -> None:
        self._is_closing = True
        self._connection.close()

    def _on_message(self, message: bytes) -> None:
        if not message:
            if not self._is_closing:
                self.ready.set()
            return
        number, outcome = decode_response(message)
        future = self._pending.pop(number)
        if future.done():  # the caller was cancelled
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _on_end(self) -> None:
        if not self._is_closing and not self._ended.is_set():
            _log.warning(
                "Writer process ended unexpectedly",
                extra={"fields": {"action": "writer_process_ended", "pending": len(self._pending)}},
            )
        self.ready.clear()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(OutcomeUnknown(_LOST))
        self._ended.set()


class WriteRouter:
    """Routes batches of transactions to the writer thread or, under load, to the writer process.

    The process starts above `writer_process_rate` transactions per second; None disables it.
    """

    def __init__(self, path: Path, writer: WriterThread, writer_process_rate: int | None) -> None:
        self._path = path
        self._writer = writer
        self._rate = writer_process_rate if _cpu_count() > 1 else None
        self.process: WriterProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._window_start = self._not_before = 0.0
        self._count = 0

    def submit(self, batch: PreparedBatch) -> "asyncio.Future[Any]":
        """Run the batch; the future resolves once it is durable."""
        process = self.process
        if process is not None and process.ready.is_set():
            if len(batch) >= _MIN_TRANSACTIONS or process.is_busy:
                return process.submit(batch)
        elif self._rate is not None:
            self._count_transactions(len(batch), self._rate)
        return self._writer.submit(batch)

    async def close(self) -> None:
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self.process is not None:
            await self.process.close()

    def _count_transactions(self, count: int, rate: int) -> None:
        """Start the process if this second's transactions exceed the rate."""
        now = time.monotonic()
        if now - self._window_start > 1:
            self._window_start, self._count = now, 0
        self._count += count
        is_starting = self._starting is not None and not self._starting.done()
        if self._count >= rate and now >= self._not_before and not is_starting:
            self._not_before = now + _RESTART_SECONDS
            # An empty context: its log lines do not belong to a request.
            self._starting = asyncio.create_task(self._start(), context=Context())

    async def _start(self) -> None:
        if self.process is not None:
            await self.process.close()
        self.process = WriterProcess()
        try:
            await self.process.start(self._path, self._writer.identity)
        except OSError as error:
            _log.warning(
                "Could not start the writer process",
                extra={"fields": {"action": "writer_process_start_failed", "reason": str(error)}},
            )


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
