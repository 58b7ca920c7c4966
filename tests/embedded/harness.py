"""Starts the program `holder`, and looks at processes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from redis.asyncio import Redis

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Held:
    """A running holder, and what it said."""

    process: asyncio.subprocess.Process
    dsn: str
    url: str
    processes: tuple[int, ...]
    ours: tuple[bool, ...]

    async def kill(self) -> None:
        """As `kill -9` does."""
        self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        """Let it end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()


@asynccontextmanager
async def holding(
    directory: Path,
    before: tuple[str, ...] = (),
    python: str = sys.executable,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Held]:
    """A program with both servers in `folder`, ended at the end; `before` is put before the interpreter."""
    process = await asyncio.create_subprocess_exec(
        *before,
        python,
        "-m",
        "tests.embedded.server_program",
        str(directory),
        cwd=ROOT,
        env=os.environ | (environ or {}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line, "the holder has ended"
        said: dict[str, Any] = json.loads(line)
        yield Held(process, said["dsn"], said["url"], tuple(said["processes"]), tuple(said["ours"]))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            process.kill()
            await process.wait()


def lives(process_id: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


async def until(holds: Callable[[], bool]) -> None:
    """Return as soon as it holds; the test fails if it never does."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  (what is waited for is another process)
            await asyncio.sleep(0.01)


def owner_of(process_id: int) -> int:
    """As whom a process runs."""
    return Path(f"/proc/{process_id}").stat().st_uid


def mode_of(path: Path) -> int:
    """Who may do what to it."""
    return path.stat().st_mode & 0o777


def owners(directory: Path) -> set[int]:
    """To whom the folder and all that is in it belong."""
    return {path.lstat().st_uid for path in (directory, *directory.rglob("*"))}


def open_to_others(directory: Path) -> list[str]:
    """What in the folder others than its owner may touch."""
    return [
        str(path) for path in (directory, *directory.rglob("*")) if path.lstat().st_mode & 0o077
    ]


async def ask(dsn: str, statement: str) -> Any:
    """The answer of PostgreSQL to one statement."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def ask_again(dsn: str, statement: str) -> Any:
    """The answer of a PostgreSQL that is just being started again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                return await ask(dsn, statement)
            await asyncio.sleep(0.01)


async def ping(url: str) -> bool:
    """Whether Valkey answers."""
    client = Redis.from_url(url)
    try:
        return bool(await client.ping())
    finally:
        await client.aclose()
