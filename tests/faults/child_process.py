"""Starts modules of this package as processes, reads their output line by line, and kills them.

Children print with `say`, which writes to the pipe immediately, so a killed child's output is never
lost in a buffer. A child never outlives its test.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent.parent
_MAX_LINE_BYTES = 64 * 1024 * 1024


def say(line: str) -> None:
    """Print one line from a child."""
    os.write(1, line.encode() + b"\n")


class Child:
    """A running module of this package."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    @property
    def running(self) -> bool:
        """Whether the process still exists."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    async def line(self) -> str:
        """Read the next line; fail with the child's stderr if it ended."""
        line = await self._read()
        assert line is not None, f"the child ended: {self.stderr_text()}"
        return line

    async def expect(self, expected: str) -> None:
        """Read until exactly this line."""
        while await self.line() != expected:
            pass

    async def rest(self) -> list[str]:
        """Read all lines until the child ends."""
        lines = []
        while (line := await self._read()) is not None:
            lines.append(line)
        return lines

    async def send(self, line: str) -> None:
        """Write one line to the child's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def request(self, line: str) -> str:
        """Send a line and read the response."""
        await self.send(line)
        return await self.line()

    def kill(self) -> None:
        """Kill the child with SIGKILL."""
        self._signal(signal.SIGKILL)

    def suspend(self) -> None:
        """Stop the child with SIGSTOP; it keeps its locks."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        # Not by the process object, which would reap a child that has just ended, while asyncio
        # waits for it.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def end(self) -> int:
        """Close the child's input, wait for its end, and return the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode

    def stderr_text(self) -> str:
        """Read what the child wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode()

    async def _read(self) -> str | None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        return line.decode().removesuffix("\n") if line.endswith(b"\n") else None


@asynccontextmanager
async def started(
    module: str, *arguments: str, before: tuple[str, ...] = ()
) -> AsyncIterator[Child]:
    """Run a module of this package; kill it at the end. `before` is prepended to the command."""
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *before,
            sys.executable,
            "-m",
            f"tests.faults.{module}",
            *arguments,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=_MAX_LINE_BYTES,
        )
        child = Child(process, errors)
        try:
            yield child
        finally:
            if process.returncode is None:
                child.kill()
            await child.end()
