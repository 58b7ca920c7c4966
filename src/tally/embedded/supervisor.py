"""Keeps one server running: starts it, waits until it is ready, starts it again if it dies, and stops it.

Of all programs on one data directory, the one that holds the folder's lock has the server as its
child. The others use it too, try for the lock now and then, and whoever gets it starts the server
anew. The kernel stops the server when its program ends, so nothing has to be found and killed by
its number, which may have become somebody else's.
"""

import asyncio
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tally.embedded.server_directory import DirectoryLock, EmbeddedServerError, RotatingLog
from tally.embedded.spawn import spawn
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within

_log = logs.logger()

START_TIMEOUT_SECONDS: Final = 120.0
STOP_TIMEOUT_SECONDS: Final = 20.0
JOIN_POLL_SECONDS: Final = 0.05
TAKEOVER_POLL_SECONDS: Final = 0.2
MAX_BACKOFF_SECONDS: Final = 10.0
# A server that ran this long is not one that cannot start.
STABLE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run, and how to tell that it runs.

    `prepare` is called before each start with the descriptor of the lock, when no server of ours is
    left in the folder; it answers with the identity to run under (see `launch`). `answers` says
    whether a server that somebody else started can be used.
    """

    name: str
    directory: Path
    command: Sequence[str]
    ready_line: bytes
    stop_signal: signal.Signals
    prepare: Callable[[int], Awaitable[str]]
    answers: Callable[[], Awaitable[bool]]


@dataclass(slots=True)
class Supervisor:
    """An async context manager: the server can be used between its start and its end."""

    program: Program
    clock: Clock
    _lock: DirectoryLock = field(init=False)
    _said: RotatingLog = field(init=False)
    _process: Process | None = None
    _reading: asyncio.Task[None] | None = None
    _watching: asyncio.Task[None] | None = None
    _may_run: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._lock = DirectoryLock(self.program.directory / "lock")
        self._said = RotatingLog(self.program.directory / "log")
        self._may_run.set()

    @property
    def is_paused(self) -> bool:
        """Whether the server is stopped because somebody wanted to see what happens then."""
        return not self._may_run.is_set()

    def pause(self) -> None:
        """Stop the server, and start it again no sooner than `let_run`; one of another program goes on."""
        self._may_run.clear()
        if self._process is not None and self._process.returncode is None:
            _signal(self._process, self.program.stop_signal)

    def resume(self) -> None:
        self._may_run.set()

    @property
    def is_ours(self) -> bool:
        """Whether the server is a child of this program, rather than of another on the same directory."""
        return self._lock.is_held

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        try:
            await finish_within(self.clock, START_TIMEOUT_SECONDS, self._start_or_join())
        except DeadlineExceeded as late:
            await self._end()
            raise EmbeddedServerError(
                f"{self.program.name} in {self.program.directory} is not ready: {self._why()}"
            ) from late
        except BaseException:
            await self._end()
            raise
        self._watching = asyncio.create_task(self._watch(), name=f"supervise {self.program.name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        await self._end()

    async def _start_or_join(self) -> None:
        while not self._lock.take():
            if await self.program.answers():
                _log.info(
                    f"{self.program.name} of another program is used",
                    action="server_join",
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
        self._reading = asyncio.create_task(self._read(self._process, ready))
        waits = {asyncio.create_task(ready.wait()), asyncio.create_task(self._process.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
        if not ready.is_set():
            await self._reading
            raise EmbeddedServerError(
                f"{self.program.name} in {self.program.directory} did not start: {self._why()}"
            )

    def _why(self) -> str:
        return " / ".join(self._said.last_lines) or "it said nothing"

    async def _read(self, process: Process, ready: asyncio.Event) -> None:
        """Write down what the server says, and tell when it says that it is ready."""
        assert process.stdout is not None  # noqa: S101
        try:
            async for line in process.stdout:
                self._said.write(line)
                if self.program.ready_line in line:
                    ready.set()
        except (OSError, ValueError) as error:  # a full disk, or a line beyond all bounds
            _log.warning(
                f"The log of {self.program.name} is not written", action="server_log", error=error
            )
            while await process.stdout.read(65_536):
                pass  # the server must not wait for its reader

    async def _watch(self) -> None:
        """See to it that the server runs, for as long as this program does."""
        failed = 0
        while True:
            if self._lock.is_held:
                failed = await self._until_dead(failed)
                await self._may_run.wait()
                await self.clock.sleep(min(MAX_BACKOFF_SECONDS, 0.1 * (2.0 ** min(failed, 20) - 1)))
            else:
                await self.clock.sleep(TAKEOVER_POLL_SECONDS)
                if not self._lock.take():
                    continue
                _log.warning(
                    f"{self.program.name} is started here: its program is gone",
                    action="server_take_over",
                )
            try:
                await self._start()
            except (EmbeddedServerError, OSError) as error:
                _log.error(
                    f"{self.program.name} does not start", action="server_restart", error=error
                )
            else:
                _log.info(f"{self.program.name} runs again", action="server_restart")

    async def _until_dead(self, failed: int) -> int:
        """Wait for the end of the server; how often in a row it has ended early, by now."""
        started = self.clock.monotonic()
        status = None if self._process is None else await self._process.wait()
        _log.error(
            f"{self.program.name} has died and is started again",
            action="server_restart",
            status=status,
        )
        return 0 if self.clock.monotonic() - started > STABLE_SECONDS else failed + 1

    async def _end(self) -> None:
        """Stop the server if it is ours, first kindly, and let go of the folder."""
        if self._process is not None and self._process.returncode is None:
            for number in (self.program.stop_signal, signal.SIGQUIT, signal.SIGKILL):
                _signal(self._process, number)
                try:
                    await finish_within(self.clock, STOP_TIMEOUT_SECONDS, self._process.wait())
                    break
                except DeadlineExceeded:
                    _log.warning(
                        f"{self.program.name} does not stop",
                        action="server_stop",
                        signal=number.name,
                    )
        if self._reading is not None:
            await asyncio.wait({self._reading})
        self._lock.release()


def _signal(process: Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return  # it ended by itself, a moment ago
