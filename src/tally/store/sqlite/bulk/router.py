"""Routes bulk transactions to the writer thread or, under load, to the writer process."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any

from tally.store.api import Transaction
from tally.store.schema import Table
from tally.store.sqlite.bulk.batches import PreparedBatch, prepare_batch
from tally.store.sqlite.bulk.writer_process import WriterProcess
from tally.store.sqlite.layout import Layout
from tally.store.sqlite.writer_thread import WriterThread

_RESTART_SECONDS = 30.0  # after a failed start or an unexpected end
_MIN_TRANSACTIONS = 8  # smaller batches use the process only while it is busy

_log = logging.getLogger(__name__)


class WriteRouter:
    """The entrance of the bulk path.

    The process starts above `writer_process_rate` transactions per second; None disables it.
    `clock` returns the time of changes; `on_commit` is called after a commit of the process.
    """

    def __init__(
        self,
        path: Path,
        writer: WriterThread,
        writer_process_rate: int | None,
        clock: Callable[[], float],
        on_commit: Callable[[], None],
    ) -> None:
        self._path = path
        self._new_process = partial(WriterProcess, clock, on_commit)
        self._writer = writer
        self._rate = writer_process_rate if _cpu_count() > 1 else None
        self.process: WriterProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._window_start = self._not_before = 0.0
        self._count = 0

    def submit(
        self, operations: Sequence[Transaction], layout_of: Callable[[Table], Layout]
    ) -> "asyncio.Future[Any] | None":
        """Run transactions of the same shape; None if their shape does not allow it.

        The future resolves to one outcome per transaction once they are durable.
        """
        batch = prepare_batch(operations, layout_of)
        return None if batch is None else self._submit(batch)

    async def close(self) -> None:
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self.process is not None:
            await self.process.close()

    def _submit(self, batch: PreparedBatch) -> "asyncio.Future[Any]":
        process = self.process
        if process is not None and process.ready.is_set():
            if len(batch) >= _MIN_TRANSACTIONS or process.is_busy:
                return process.submit(batch)
        elif self._rate is not None:
            self._count_transactions(len(batch), self._rate)
        return self._writer.submit(batch)

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
        self.process = self._new_process()
        try:
            await self.process.start(self._path, self._writer.identity)
        except OSError as error:
            _log.warning(
                "Could not start the writer process",
                extra={"fields": {"action": "writer_process_start_failed", "reason": str(error)}},
            )


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
