"""Starts modules of this package as real processes, reads what they say line by line, and kills them.

A child says something by `say`, which writes to the pipe at once: what a killed child had said
before its end is never lost in a buffer. A child that was started here never outlives its test, nor
the pipe that it speaks to.
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
_LONGEST_LINE = 64 * 1024 * 1024


def say(line: str) -> None:
    """Used by children: one line to whoever started this process."""
    os.write(1, line.encode() + b"\n")


class Child:
    """A running module of this package."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, by the kernel's word."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    async def line(self) -> str:
        """The next line; an assertion fails with the child's complaint where it ended instead."""
        said = await self._read()
        assert said is not None, f"the child ended: {self.complaint()}"
        return said

    async def expect(self, wanted: str) -> None:
        """Read on to exactly this line."""
        while await self.line() != wanted:
            pass

    async def rest(self) -> list[str]:
        """All lines to the end of the child."""
        lines = []
        while (said := await self._read()) is not None:
            lines.append(said)
        return lines

    async def tell(self, line: str) -> None:
        """One line to the child's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def ask(self, line: str) -> str:
        """Tell, and read the answer."""
        await self.tell(line)
        return await self.line()

    def kill(self) -> None:
        """As `kill -9` does: the child has no say in it."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Let the child stand still where it is, holding what it holds."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        # Not by the process object, which would reap a child that has just ended, while asyncio
        # waits for it.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def end(self) -> int:
        """Close the child's input, wait until it has ended, and return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode

    def complaint(self) -> str:
        """What the child wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode()

    async def _read(self) -> str | None:
        assert self._process.stdout is not None
        said = await self._process.stdout.readline()
        return said.decode().removesuffix("\n") if said.endswith(b"\n") else None


@asynccontextmanager
async def started(
    module: str, *arguments: str, before: tuple[str, ...] = ()
) -> AsyncIterator[Child]:
    """The module of this package as a process, killed at the end if it still runs; `before` is put before the interpreter."""
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
            limit=_LONGEST_LINE,
        )
        child = Child(process, errors)
        try:
            yield child
        finally:
            if process.returncode is None:
                child.kill()
            await child.end()
