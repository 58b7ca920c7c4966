"""A server on every engine (`site`), shared by all tests that bring boards and keys of their own, and `fresh` ones.

- `sqlite`: always.
- `local`: AWS's DynamoDB Local, where there are Java and npm.
- `given`: whatever `TALLY_TEST_DYNAMODB_URL` names.

The clock of the shared server only ever goes forward. A test that needs empty tables asks for
`fresh`; one that needs other settings or several servers asks for the `ground`, and opens them in a
`place` of its own.
"""

import contextlib
import io
import logging
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from tally.app import CATALOGUE
from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.settings import Settings
from tally.store.api import Engine
from tally.store.catalogue import Catalogue
from tally.store.dynamodb import open_dynamodb
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.devices.site import Site, running, settings_of
from tests.store.emulators import MADE_UP, dynamodb_local, engines, given_url

TABLES = Catalogue({"devices": CATALOGUE.backends["devices"]}).tables()
ENGINES = engines("local")


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a server can stand: an engine's name, the service where there is one, and a folder for all else."""

    engine: str
    url: str | None
    folder: Path

    async def place(self, **changes: Any) -> Settings:
        """Settings of a server on tables that nobody else has, made and empty."""
        folder = self.folder / secrets.token_hex(8)
        if self.url is None:
            return settings_of(data_dir=folder, **changes)
        prefix = f"tally-test-{secrets.token_hex(4)}-"
        settings = settings_of(
            data_dir=folder,
            store_engine="dynamodb",
            dynamodb_endpoint=self.url,
            dynamodb_region=os.environ.get("AWS_REGION", "us-east-1"),
            dynamodb_table_prefix=prefix,
            **changes,
        )
        async with engine_of(settings) as engine:
            for table in TABLES:
                await engine.create_table(table)
        return settings


@contextlib.asynccontextmanager
async def engine_of(settings: Settings) -> AsyncIterator[Engine]:
    """The engine that a server with these settings has, beside it."""
    if settings.store_engine == "sqlite":
        async with open_sqlite(settings.data_dir) as embedded:
            for table in TABLES:
                await embedded.ensure_table(table)
            yield embedded
        return
    where, region, prefix = (
        settings.dynamodb_endpoint,
        settings.dynamodb_region,
        settings.dynamodb_table_prefix,
    )
    async with open_dynamodb(endpoint=where, region=region, table_prefix=prefix) as engine:
        yield engine


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """All that is logged during the test, a JSON object a line."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure(Settings(log_format="json"), SystemClock(), stream)
    yield stream
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


@pytest.fixture(scope="session", params=ENGINES)
def ground(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """Each engine in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        yield Ground("sqlite", None, folder)
        return
    with contextlib.ExitStack() as stack:
        given = given_url()
        url = given if request.param == "given" and given else stack.enter_context(dynamodb_local())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if "AWS_ACCESS_KEY_ID" not in os.environ and "AWS_PROFILE" not in os.environ:
            patch.setenv("AWS_ACCESS_KEY_ID", MADE_UP.access_key)
            patch.setenv("AWS_SECRET_ACCESS_KEY", MADE_UP.secret_key)
        yield Ground(request.param, url, folder)


@pytest.fixture(scope="session")
async def site(ground: Ground) -> AsyncIterator[Site]:
    """A server that all tests share: bring your own boards and keys, and do not count on lists to be empty."""
    async with running(await ground.place()) as site:
        yield site


@pytest.fixture(scope="session")
async def key(site: Site) -> str:
    """An API key of the shared server."""
    return await site.new_key("for all tests")


@pytest.fixture
async def fresh(ground: Ground) -> AsyncIterator[Site]:
    """A server with empty tables and a clock of its own."""
    async with running(await ground.place()) as site:
        yield site


@pytest.fixture(scope="session")
async def store(ground: Ground) -> AsyncIterator[Store]:
    """A store with the tables of the backend, for repositories without a server; bring your own keys."""
    async with engine_of(await ground.place()) as engine:
        yield Store(engine)
