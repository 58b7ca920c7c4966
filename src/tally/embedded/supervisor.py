"""Supervises one server: starts it, waits until it is ready, restarts it and stops it.

Of all programs on one data directory, the one with the directory's lock has the server as its
child. The others use the server too and poll the lock; the one that acquires it restarts the
server. The kernel stops the server when its program ends, so no process has to be found and killed
by an id that may have been reused.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tally.embedded import launch
from tally.embedded.server_directory import DirectoryLock, EmbeddedServerError, RotatingLog
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within

_log = logs.logger()

START_TIMEOUT_SECONDS: Final = 120.0
STOP_TIMEOUT_SECONDS: Final = 20.0
JOIN_POLL_SECONDS: Final = 0.05
TAKEOVER_POLL_SECONDS: Final = 0.2
INITIAL_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 10.0
# A server that ran this long resets the back-off.
STABLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProgram:
    """How to run a server.

    `prepare` runs before each start, when no embedded server is left in the directory. It receives
    the lock's descriptor and returns the identity to run as (see `launch`). `is_ready` checks
    whether the server of another program accepts connections.
    """

    name: str
    directory: Path
    command: Sequence[str]
    ready_line: bytes
    stop_signal: signal.Signals
    prepare: Callable[[int], Awaitable[str]]
    is_ready: Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class Supervisor:
    """Runs a server for as long as this async context manager is open."""

    program: ServerProgram
    clock: Clock
    _lock: DirectoryLock = field(init=False)
    _output: RotatingLog = field(init=False)
    _process: Process | None = None
    _reader: asyncio.Task[None] | None = None
    _watcher: asyncio.Task[None] | None = None
    _may_run: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._lock = DirectoryLock(self.program.directory / "lock")
        self._output = RotatingLog(self.program.directory / "log")
        self._may_run.set()

    @property
    def is_paused(self) -> bool:
        """Whether `pause` has stopped the server."""
        return not self._may_run.is_set()

    def pause(self) -> None:
        """Stop the server until `resume`; the server of another program keeps running."""
        self._may_run.clear()
        if self._process is not None and self._process.returncode is None:
            _send_signal(self._process, self.program.stop_signal)

    def resume(self) -> None:
        self._may_run.set()

    @property
    def owns_server(self) -> bool:
        """Whether the server is a child of this program, not of another on the same directory."""
        return self._lock.is_acquired

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        try:
            await finish_within(self.clock, START_TIMEOUT_SECONDS, self._start_or_join())
        except DeadlineExceeded as error:
            await self._stop()
            raise EmbeddedServerError(
                f"{self.program.name} in {self.program.directory} was not ready within"
                f" {START_TIMEOUT_SECONDS:.0f} s: {self._last_output()}"
            ) from error
        except BaseException:
            await self._stop()
            raise
        self._watcher = asyncio.create_task(self._watch(), name=f"supervise {self.program.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait({self._watcher})
        await self._stop()

    async def _start_or_join(self) -> None:
        while not self._lock.try_acquire():
            if await self.program.is_ready():
                _log.info(
                    f"{self.program.name} of another program joined",
                    action="server_joined",
                    directory=str(self.program.directory),
                )
                return
            await self.clock.sleep(JOIN_POLL_SECONDS)
        await self._start()

    async def _start(self) -> None:
        program, lock = self.program, self._lock.descriptor
        identity = await program.prepare(lock)
        self._process = await spawn(
            program.command, program.directory, identity, program.stop_signal, lock
        )
        ready = asyncio.Event()
        self._reader = asyncio.create_task(self._read_output(self._process, ready))
        waits = {asyncio.create_task(ready.wait()), asyncio.create_task(self._process.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
        if not ready.is_set():
            await self._reader
            raise EmbeddedServerError(
                f"{program.name} in {program.directory} did not start: {self._last_output()}"
            )

    def _last_output(self) -> str:
        return " / ".join(self._output.last_lines) or "no output"

    async def _read_output(self, process: Process, ready: asyncio.Event) -> None:
        """Write the server's output to its log, and set `ready` at the ready line."""
        assert process.stdout is not None  # noqa: S101
        try:
            async for line in process.stdout:
                self._output.write(line)
                if self.program.ready_line in line:
                    ready.set()
        except (OSError, ValueError) as error:  # a full disk, or a line above the buffer's limit
            _log.warning(
                f"{self.program.name} log could not be written",
                action="server_log_failed",
                error=error,
            )
            while await process.stdout.read(65_536):
                pass  # keep reading, or the server blocks on a full pipe

    async def _watch(self) -> None:
        """Restart the server when it ends, or take it over when its program ends."""
        failures = 0
        while True:
            if self._lock.is_acquired:
                failures = await self._wait_for_exit(failures)
                await self._may_run.wait()
                await self.clock.sleep(_backoff_seconds(failures))
            else:
                await self.clock.sleep(TAKEOVER_POLL_SECONDS)
                if not self._lock.try_acquire():
                    continue
                _log.warning(
                    f"{self.program.name} taken over: its program ended",
                    action="server_taken_over",
                )
            try:
                await self._start()
            except (EmbeddedServerError, OSError) as error:
                _log.error(
                    f"{self.program.name} restart failed",
                    action="server_restart_failed",
                    error=error,
                )
            else:
                _log.info(f"{self.program.name} restarted", action="server_restarted")

    async def _wait_for_exit(self, failures: int) -> int:
        """Wait until the server exits and return the number of early exits in a row."""
        started = self.clock.monotonic()
        status = None if self._process is None else await self._process.wait()
        _log.error(f"{self.program.name} exited", action="server_exited", status=status)
        return 0 if self.clock.monotonic() - started > STABLE_SECONDS else failures + 1

    async def _stop(self) -> None:
        """Stop the server if this program owns it, gracefully at first, and release the lock."""
        if self._process is not None and self._process.returncode is None:
            for number in (self.program.stop_signal, signal.SIGQUIT, signal.SIGKILL):
                _send_signal(self._process, number)
                try:
                    await finish_within(self.clock, STOP_TIMEOUT_SECONDS, self._process.wait())
                    break
                except DeadlineExceeded:
                    _log.warning(
                        f"{self.program.name} did not stop within {STOP_TIMEOUT_SECONDS:.0f} s",
                        action="server_stop_timed_out",
                        signal=number.name,
                    )
        if self._reader is not None:
            await asyncio.wait({self._reader})
        self._lock.release()


async def spawn(
    command: Sequence[str],
    directory: Path,
    identity: str,
    death_signal: signal.Signals,
    lock: int,
) -> Process:
    """Start a child process through `launch`, with its output piped to this process.

    It receives `death_signal` when this process ends and keeps `lock` open. It gets no input and
    none of this process' variables, and its own session, so Ctrl-C does not reach it.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        launch.__file__,
        str(os.getpid()),
        str(int(death_signal)),
        identity,
        *command,
        cwd=directory,
        env={"LC_ALL": "C", "TZ": "UTC", "PATH": os.environ.get("PATH", os.defpath)},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
        pass_fds=(lock,),
    )


def _backoff_seconds(failures: int) -> float:
    return min(MAX_BACKOFF_SECONDS, INITIAL_BACKOFF_SECONDS * (2.0 ** min(failures, 20) - 1))


def _send_signal(process: Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return  # it has just ended
