"""A process of its own that writes what comes many at a time, where that is much: the scribe.

The writer's thread shares Python's lock with the event loop. Under load the two wait for each other
at every statement, and a commit takes three times as long as its work; on another core, with a lock
of its own, it does not. The scribe is started when there is enough to write, and ends with the
engine. It needs some forty megabytes.
"""

import asyncio
import os
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from contextlib import ExitStack, suppress
from contextvars import Context
from pathlib import Path
from typing import Any

from tally.kit import logs
from tally.store.errors import OutcomeUnknown
from tally.store.sqlite.bulk import PreparedBatch
from tally.store.sqlite.ipc import MessageConnection, decode_response, encode_request
from tally.store.sqlite.writer_thread import WriterThread

_AGAIN_SECONDS = 30.0  # after it could not be started, or ended by itself
_END_SECONDS = 20.0
_MANY = (
    8  # transactions that are worth the way to the scribe; fewer go along where it writes anyway
)
_LOST = "the process that writes has ended: what was asked of it may have been stored, or not"

_log = logs.logger()


class WriterProcess:
    """The process, and what it was asked for."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self._line = MessageConnection(self._on_message, self._on_end)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._ended = asyncio.Event()
        self._is_closing = False
        self._process: Process | None = None

    async def start(self, path: Path, file: tuple[int, int]) -> None:
        """Start it for the file of that identity; it is ready a moment later."""
        ours, its = socket.socketpair()
        with its, ExitStack() as unless_it_starts:
            unless_it_starts.callback(ours.close)
            await asyncio.get_running_loop().create_connection(lambda: self._line, sock=ours)
            unless_it_starts.pop_all()
            unless_it_starts.callback(self._give_up)
            # A session of its own: what ends Tally from the keyboard is for Tally to hear.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "tally.store.sqlite.writer_process_main",
                *map(str, (path, *file, its.fileno())),
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path))
                },  # the same modules as here
                pass_fds=(its.fileno(),),
                stdin=DEVNULL,
                stdout=DEVNULL,
                start_new_session=True,
            )
            unless_it_starts.pop_all()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def submit(self, work: PreparedBatch) -> "asyncio.Future[Any]":
        """Ask for the work to be done; the future is answered once it is durable, or with OutcomeUnknown if it ends before."""
        self._number += 1
        self._line.send(encode_request(self._number, work))
        future = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        return future

    async def close(self) -> None:
        """Let it finish what it was asked for, and end."""
        self._is_closing = True
        self.ready.clear()
        if self._process is None:
            return
        self._line.say_no_more()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._ended.wait()
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        finally:
            self._line.close()

    def _give_up(self) -> None:
        self._is_closing = True
        self._line.close()

    def _on_message(self, message: bytes) -> None:
        if not message:
            if not self._is_closing:
                self.ready.set()
            return
        number, outcome = decode_response(message)
        future = self._waiting.pop(number)
        if future.done():  # whoever asked has been cancelled
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _on_end(self) -> None:
        if not self._is_closing and not self._ended.is_set():
            _log.warning(
                "The process that writes for the store has ended",
                action="scribe_ended",
                waiting=len(self._waiting),
            )
        self.ready.clear()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(OutcomeUnknown(_LOST))
        self._ended.set()


class WriteRouter:
    """Where transactions go that came many at a time: to the writer's thread, or to the scribe where there are very many.

    It is worth its memory from `busy` transactions in a second on; None: never.
    """

    def __init__(self, path: Path, writer: WriterThread, writer_process_rate: int | None) -> None:
        self._path = path
        self._writer = writer
        self._busy = writer_process_rate if _processors() > 1 else None
        self.process: WriterProcess | None = None
        self._starting: asyncio.Task[None] | None = None
        self._since = self._not_before = 0.0
        self._count = 0

    def submit(self, work: PreparedBatch) -> "asyncio.Future[Any]":
        """Ask for the work to be done; the future is answered once it is durable."""
        process = self.process
        if process is not None and process.ready.is_set():
            if len(work) >= _MANY or process.is_busy:
                return process.submit(work)
        elif self._busy is not None:
            self._consider(len(work), self._busy)
        return self._writer.submit(work)

    async def close(self) -> None:
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self.process is not None:
            await self.process.close()

    def _consider(self, count: int, writer_process_rate: int) -> None:
        now = time.monotonic()
        if now - self._since > 1:
            self._since, self._count = now, 0
        self._count += count
        is_starting = self._starting is not None and not self._starting.done()
        if self._count >= writer_process_rate and now >= self._not_before and not is_starting:
            self._not_before = now + _AGAIN_SECONDS
            self._starting = asyncio.create_task(
                self._start(), context=Context()
            )  # its log lines are of no request

    async def _start(self) -> None:
        if self.process is not None:
            await self.process.close()
        self.process = WriterProcess()
        try:
            await self.process.start(self._path, self._writer.file)
        except OSError as error:
            _log.warning(
                "No process of its own for the store's writing",
                action="scribe_not_started",
                reason=str(error),
            )


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
