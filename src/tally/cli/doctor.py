"""`tally doctor`: checks what Tally needs on this machine and suggests remedies; changes nothing.

It reads the same settings as the other commands, so run it as the user and with the environment of
the server. Exit codes: 0 if Tally can run, perhaps with warnings; 1 if a check failed.
"""

import asyncio
import os
import resource
import shutil
import stat
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import asyncpg
import msgspec
import typer
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tally.app import CATALOGUE
from tally.cli.startup import AsJson
from tally.kit import directory_lock, logs
from tally.kit.clock import SystemClock
from tally.kit.server import ListenError, listen
from tally.settings import Settings, SettingsError, read_settings, unknown_variables
from tally.store import dynamodb
from tally.store.errors import StoreError
from tally.store.sqlite.directory import DirectoryLease, check_directory
from tally.store.sqlite.files import FILE_NAME

CONNECT_SECONDS: Final = 3.0
MAX_CLOCK_DIFFERENCE_SECONDS: Final = 5.0
MIN_FREE_BYTES: Final = 1_000_000_000
MIN_OPEN_FILES: Final = 4_096
GIGABYTE: Final = 1_000_000_000
# A port above 65,535 is an OverflowError.
_CONNECT_ERRORS: Final = (OSError, ValueError, OverflowError)
SERVER_STATE: Final = (
    "SELECT extract(epoch FROM clock_timestamp())::float8, current_setting('server_version')"
)


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `remedy` says what to do."""

    check: str
    level: Level
    message: str
    remedy: str = ""


def diagnose(as_json: AsJson = False) -> None:
    findings = _find()
    if as_json:
        typer.echo(msgspec.json.encode(findings))
    else:
        for finding in findings:
            typer.echo(f"{finding.level:8} {finding.check}: {finding.message}")
            if finding.remedy:
                typer.echo(f"         → {finding.remedy}")
    if any(finding.level is Level.FAILED for finding in findings):
        raise typer.Exit(1)


def _find() -> list[Finding]:
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        remedy = "`tally settings --markdown` describes the values."
        return [Finding("settings", Level.FAILED, text, remedy) for text in error.problems]
    logs.configure(settings, SystemClock())
    return asyncio.run(_collect(settings))


async def _collect(settings: Settings) -> list[Finding]:
    findings = [
        *_check_settings(),
        *_check_data_directory(settings.data_dir),
        *_check_disk(settings.data_dir),
        *_check_limits(),
        *_check_port(settings),
    ]
    if settings.store_engine == "dynamodb":
        findings += [finding async for finding in _check_dynamodb(settings)]
    else:
        findings += _check_store(settings.data_dir)
    if "scoreboard" in settings.backends:
        findings += [finding async for finding in _check_postgresql(settings)]
        findings += [finding async for finding in _check_redis(settings)]
    return findings


def _check_settings() -> Iterator[Finding]:
    problems = unknown_variables(os.environ)
    for problem in problems:
        yield Finding("settings", Level.WARNING, problem, "`tally settings` lists all settings.")
    if not problems:
        yield Finding("settings", Level.OK, "All variables are known and valid.")


def _check_data_directory(data_dir: Path) -> Iterator[Finding]:
    name = "data directory"
    if not data_dir.exists():
        parent = next(path for path in data_dir.resolve().parents if path.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding(name, Level.OK, f"{data_dir} does not exist; the first start creates it.")
        else:
            remedy = f"Create {data_dir} for this user, or set TALLY_DATA_DIR."
            yield Finding(name, Level.FAILED, f"{parent} is not writable.", remedy)
        return
    if not data_dir.is_dir() or not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        remedy = "Run Tally as its owner, or set TALLY_DATA_DIR."
        yield Finding(name, Level.FAILED, f"{data_dir} is not a writable directory.", remedy)
        return
    yield _check_modes(data_dir)
    newest = max(path.lstat().st_mtime for path in (data_dir, *data_dir.iterdir()))
    if newest > time.time() + MAX_CLOCK_DIFFERENCE_SECONDS:
        remedy = "Correct the clock of this machine before you start Tally."
        yield Finding("clock", Level.FAILED, f"Files in {data_dir} are from the future.", remedy)


def _check_modes(data_dir: Path) -> Finding:
    is_used = " and is in use" if directory_lock.is_locked(data_dir) else ""
    open_paths = [path for path in (data_dir, *data_dir.iterdir()) if _is_open_to_others(path)]
    foreign = [path for path in data_dir.iterdir() if path.lstat().st_uid != os.geteuid()]
    foreign = [path for path in foreign if path.name != "postgres"]
    if foreign:
        remedy = "Run Tally as the owner of the data directory, or change the owner with chown."
        message = f"{foreign[0]} belongs to another user."
        return Finding("data directory", Level.FAILED, message, remedy)
    if open_paths:
        remedy = "The next start repairs the modes."
        message = f"Other users can access {open_paths[0]}."
        return Finding("data directory", Level.WARNING, message, remedy)
    return Finding("data directory", Level.OK, f"{data_dir} is private{is_used}.")


def _is_open_to_others(path: Path) -> bool:
    status = path.lstat()
    # 0711 is the mode of the directory where PostgreSQL runs as nobody.
    allowed = 0o011 if stat.S_ISDIR(status.st_mode) else 0
    return not stat.S_ISLNK(status.st_mode) and bool(
        stat.S_IMODE(status.st_mode) & 0o077 & ~allowed
    )


def _check_disk(data_dir: Path) -> Iterator[Finding]:
    existing = next(
        path for path in (data_dir.resolve(), *data_dir.resolve().parents) if path.exists()
    )
    usage = shutil.disk_usage(existing)
    message = f"{usage.free / GIGABYTE:.1f} of {usage.total / GIGABYTE:.1f} GB are free."
    if usage.free < MIN_FREE_BYTES:
        remedy = "Free some space: a full disk fails every write."
        yield Finding("disk", Level.WARNING, message, remedy)
    else:
        yield Finding("disk", Level.OK, message)


def _check_limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    message = f"This user may open {soft} files."
    if 0 <= soft < MIN_OPEN_FILES:
        remedy = f"Raise the limit (`ulimit -n {min(hard, 65_536)}`): each connection is a file."
        yield Finding("open files", Level.WARNING, message, remedy)
    else:
        yield Finding("open files", Level.OK, message)


def _check_port(settings: Settings) -> Iterator[Finding]:
    where = f"{settings.host}:{settings.port}"
    try:
        listen(settings.host, settings.port).close()
    except ListenError as error:
        remedy = "Another program, perhaps Tally, uses it; choose another with TALLY_PORT."
        yield Finding("port", Level.WARNING, f"{error}.", remedy)
    else:
        yield Finding("port", Level.OK, f"{where} is free.")


def _check_store(data_dir: Path) -> Iterator[Finding]:
    path = data_dir / FILE_NAME
    if not data_dir.is_dir():
        yield Finding("store", Level.OK, "SQLite; the first start creates the database.")
        return
    lease = DirectoryLease(data_dir)
    try:
        check_directory(path, is_first=lease.is_first)
    except StoreError as error:
        yield Finding("store", Level.FAILED, str(error), "See `tally store check`.")
    else:
        yield Finding(
            "store", Level.OK, "The database is present; `tally store check` verifies every page."
        )
    finally:
        lease.close()


async def _check_dynamodb(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with (
            asyncio.timeout(2 * CONNECT_SECONDS),
            dynamodb.open_dynamodb(
                endpoint=settings.dynamodb_endpoint,
                region=settings.dynamodb_region,
                table_prefix=settings.dynamodb_table_prefix,
                connect_timeout=CONNECT_SECONDS,
            ) as engine,
        ):
            existing = await engine.list_tables()
    except (StoreError, OSError) as error:
        remedy = "Check TALLY_DYNAMODB_REGION, TALLY_DYNAMODB_ENDPOINT and the credentials of AWS."
        yield Finding("store", Level.FAILED, f"DynamoDB: {type(error).__name__}: {error}", remedy)
        return
    missing = sorted({table.name for table in CATALOGUE.tables()} - {*existing})
    if missing:
        message = f"DynamoDB lacks {len(missing)} tables, such as {missing[0]}."
        yield Finding("store", Level.FAILED, message, "Run `tally schema create`.")
    else:
        yield Finding("store", Level.OK, "DynamoDB has every table.")


async def _check_postgresql(settings: Settings) -> AsyncIterator[Finding]:
    url = settings.scoreboard_database_url
    if url is None:
        yield Finding("postgresql", Level.OK, "Embedded: Tally starts it.")
        return
    try:
        connection = await asyncpg.connect(url.reveal(), timeout=CONNECT_SECONDS)
        try:
            now, version = await connection.fetchrow(SERVER_STATE)
        finally:
            await connection.close(timeout=CONNECT_SECONDS)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, *_CONNECT_ERRORS) as error:
        # The message of an error may quote the URL, which contains a password.
        remedy = "Start PostgreSQL, and check DATABASE_URL and the user's rights."
        yield Finding("postgresql", Level.FAILED, f"Unreachable: {type(error).__name__}.", remedy)
        return
    yield Finding("postgresql", Level.OK, f"PostgreSQL {version} responds.")
    yield _compare_clock("PostgreSQL", now)


async def _check_redis(settings: Settings) -> AsyncIterator[Finding]:
    url = settings.scoreboard_redis_url
    if url is None:
        yield Finding("redis", Level.OK, "Embedded: Tally starts Valkey.")
        return
    try:
        async with Redis.from_url(
            url.reveal(),
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=CONNECT_SECONDS,
        ) as client:
            seconds, microseconds = await client.time()
    except (RedisError, *_CONNECT_ERRORS) as error:
        remedy = "Start Redis, and check REDIS_URL; without it, the scoreboard works but is slower."
        yield Finding("redis", Level.WARNING, f"Unreachable: {type(error).__name__}.", remedy)
        return
    yield Finding("redis", Level.OK, "Redis responds.")
    yield _compare_clock("Redis", seconds + microseconds / 1e6)


def _compare_clock(server: str, seconds: float) -> Finding:
    difference = time.time() - seconds
    message = (
        f"This machine is {abs(difference):.1f} s {'ahead of' if difference > 0 else 'behind'}"
    )
    if abs(difference) > MAX_CLOCK_DIFFERENCE_SECONDS:
        remedy = "Synchronise both clocks, for example with NTP."
        return Finding("clock", Level.WARNING, f"{message} {server}.", remedy)
    return Finding("clock", Level.OK, f"The clocks of this machine and of {server} agree.")
