"""Programs of ours in processes of their own, as their users start them, and what they cost: memory and processor time."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class Program:
    """A program that listens."""

    url: str
    pid: int

    def memory(self) -> float:
        """Resident megabytes of its own; the pages of the database file that are mapped belong to the system's cache."""
        return sum(_memory(pid) for pid in self._processes())

    def processor_seconds(self) -> float:
        """Processor time used so far, by all threads."""
        return sum(_processor_seconds(pid) for pid in self._processes())

    def _processes(self) -> list[int]:
        """The program, and what it has started: the store's scribe."""
        started = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [
            self.pid,
            *(int(pid) for each in started for pid in each.read_text(encoding="utf-8").split()),
        ]


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def stolen_seconds() -> float:
    """Processor time that this machine wanted and its host gave to another, since it started."""
    fields = Path("/proc/stat").read_text(encoding="utf-8").split()
    return int(fields[8]) / _TICK


@asynccontextmanager
async def started(*words: str, given: Mapping[str, str]) -> AsyncIterator[Program]:
    """`tally` with these words and no settings but those given, once it has said where it listens; stopped at the end."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
    } | dict(given)
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tally.cli",
        *words,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    if program.stdout is None:
        raise AssertionError("the program has no output")
    reading = None
    try:
        url = await _address(program.stdout)
        # What it says later is read too, or it would wait for a reader one day.
        reading = asyncio.create_task(_drain(program.stdout))
        yield Program(url, program.pid)
    finally:
        if program.returncode is None:
            program.terminate()
        await program.wait()
        if reading is not None:
            await reading


async def _address(output: asyncio.StreamReader) -> str:
    said = b""
    while line := await output.readline():
        said += line
        found = _ADDRESS.search(line.decode(errors="replace"))
        if found:
            return found[0]
    raise AssertionError(f"it ended before it listened: {said.decode(errors='replace')[-2000:]}")


async def _drain(output: asyncio.StreamReader) -> None:
    while await output.read(65_536):
        pass
