"""Starts `server_program` and inspects processes, files and servers."""

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
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A running `server_program` and what it reported about its servers."""

    process: asyncio.subprocess.Process
    dsn: str
    url: str
    server_ids: tuple[int, ...]
    owns_servers: tuple[bool, ...]

    async def kill(self) -> None:
        """Kill the program with SIGKILL."""
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        """Let the program end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()


@asynccontextmanager
async def run_program(
    directory: Path,
    prefix: tuple[str, ...] = (),
    python: str = sys.executable,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningProgram]:
    """Run a program with both servers in `directory`; `prefix` precedes the interpreter."""
    process = await asyncio.create_subprocess_exec(
        *prefix,
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
        assert line, "the program has ended"
        report: dict[str, Any] = json.loads(line)
        yield RunningProgram(
            process,
            report["dsn"],
            report["url"],
            tuple(report["server_ids"]),
            tuple(report["owns_servers"]),
        )
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), TIMEOUT_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def is_running(process_id: int) -> bool:
    """Return whether the process exists and has not ended."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true; raises TimeoutError."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110  (the condition depends on another process)
            await asyncio.sleep(0.01)


def owner_of_process(process_id: int) -> int:
    return Path(f"/proc/{process_id}").stat().st_uid


def permissions(path: Path) -> int:
    return path.stat().st_mode & 0o777


def owners(directory: Path) -> set[int]:
    """Return the owners of the directory and of everything in it."""
    return {path.lstat().st_uid for path in (directory, *directory.rglob("*"))}


def accessible_to_others(directory: Path) -> list[str]:
    """Return the paths in the directory that other users can access."""
    return [
        str(path) for path in (directory, *directory.rglob("*")) if path.lstat().st_mode & 0o077
    ]


async def query(dsn: str, statement: str) -> Any:
    """Run one statement and return its first value."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def query_with_retry(dsn: str, statement: str) -> Any:
    """Run one statement on a PostgreSQL that is restarting."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                return await query(dsn, statement)
            await asyncio.sleep(0.01)


async def ping(url: str) -> bool:
    """Return whether Valkey responds."""
    client = Redis.from_url(url)
    try:
        return bool(await client.ping())
    finally:
        await client.aclose()
