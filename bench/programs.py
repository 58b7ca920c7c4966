"""Starts servers as separate processes and measures their memory and CPU time."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_URL = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class Program:
    """A running server process."""

    url: str
    pid: int

    def memory(self) -> float:
        """Return anonymous resident memory in MB; mapped database pages are page cache."""
        return sum(_memory(pid) for pid in self._processes())

    def cpu_seconds(self) -> float:
        """Return the CPU time used so far by all threads."""
        return sum(_cpu_seconds(pid) for pid in self._processes())

    def core_wait_seconds(self) -> float:
        """Return how long all threads together were ready but had no core."""
        return sum(_schedule_seconds(pid, 1) for pid in self._processes())

    def _processes(self) -> list[int]:
        """Return the program and its children, such as the store's writer process."""
        files = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [
            self.pid,
            *(int(pid) for file in files for pid in file.read_text(encoding="utf-8").split()),
        ]


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def _cpu_seconds(pid: int) -> float:
    """Return the time of all threads; /proc/PID/stat counts in steps of 10 ms."""
    return _schedule_seconds(pid, 0)


def _schedule_seconds(pid: int, column: int) -> float:
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text(encoding="utf-8").split()[column]) for file in files) / 1e9


def stolen_seconds() -> float:
    """Return the CPU time that the hypervisor gave to other machines since boot."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").split()
    return int(fields[8]) / _TICK


def start_program(
    *arguments: str, environment: Mapping[str, str]
) -> AbstractAsyncContextManager[Program]:
    """Run `tally` with only the settings in `environment`; yield when it listens."""
    return start_module("tally.cli", *arguments, environment=environment)


@asynccontextmanager
async def start_module(
    module: str, *arguments: str, environment: Mapping[str, str]
) -> AsyncIterator[Program]:
    """Run `python -m module` and yield when it prints its URL."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        env=inherited | {"TALLY_SHUTDOWN_DELAY": "0"} | dict(environment),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    if program.stdout is None:
        raise AssertionError("the program has no output")
    drain_task = None
    try:
        url = await _read_url(program.stdout)
        # Reading the rest of the output keeps the pipe from filling up.
        drain_task = asyncio.create_task(_drain(program.stdout))
        yield Program(url, program.pid)
    finally:
        if program.returncode is None:
            program.terminate()
        await program.wait()
        if drain_task is not None:
            await drain_task


async def _read_url(output: asyncio.StreamReader) -> str:
    text = b""
    while line := await output.readline():
        text += line
        found = _URL.search(line.decode(errors="replace"))
        if found:
            return found[0]
    raise AssertionError(
        f"the program ended before it listened: {text.decode(errors='replace')[-2000:]}"
    )


async def _drain(output: asyncio.StreamReader) -> None:
    while await output.read(65_536):
        pass
