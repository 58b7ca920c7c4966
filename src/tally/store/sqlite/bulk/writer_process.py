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
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tally.store.errors import OutcomeUnknown
from tally.store.sqlite.bulk.batches import PreparedBatch
from tally.store.sqlite.bulk.ipc import MessageConnection, decode_response, encode_request

_END_SECONDS = 20.0
_LOST = "the writer process ended: the write may or may not have been stored"

_log = logging.getLogger(__name__)


class WriterProcess:
    """The process and its pending requests; `on_commit` is called after each response."""

    def __init__(self, clock: Callable[[], float], on_commit: Callable[[], None]) -> None:
        self._clock = clock
        self._on_commit = on_commit
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
                "tally.store.sqlite.bulk.writer_process_main",
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
        self._connection.send(encode_request(self._number, batch, self._clock()))
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
        if not future.done():  # the caller was not cancelled
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._on_commit()

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
