"""The `engine` fixture: runs a test on SQLite and on all available DynamoDB services.

- `sqlite`: always.
- `local`: AWS's DynamoDB Local, if Java and npm are available.
- `ministack`: an emulator that is closer to the current service.
- `given`: the service at `TALLY_TEST_DYNAMODB_URL`.

Real DynamoDB is the specification. Where an emulator is known to differ (`differences.py`), the
test must fail.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from tally.store.api import Engine
from tally.store.sqlite import open_sqlite
from tests.store.differences import expected_to_fail
from tests.store.emulators import engines, given_engine, given_url, local_engine, ministack_engine
from tests.store.features import Features, features
from tests.store.tables import TABLES

ENGINES = engines("local", "ministack")


@pytest.fixture(scope="session", params=ENGINES)
async def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """An open engine with all shared tables."""
    async with _open(request.param, tmp_path_factory) as engine:
        for table in TABLES:
            await engine.create_table(table)
        yield engine


def _open(name: str, folders: pytest.TempPathFactory) -> AbstractAsyncContextManager[Engine]:
    if name == "sqlite":
        return open_sqlite(folders.mktemp("sqlite"))
    if name == "local":
        return local_engine()
    if name == "ministack":
        return ministack_engine()
    url = given_url()
    assert url is not None
    return given_engine(url)


@pytest.fixture(scope="session")
async def features_found(opened: Engine) -> Features:
    """The features of the engine, probed once."""
    return await features(opened)


@pytest.fixture
def engine(opened: Engine, features_found: Features, request: pytest.FixtureRequest) -> Engine:
    """An engine; the test must fail where the engine is known to differ from DynamoDB."""
    where = request.node.callspec.params["opened"]
    case = request.node.callspec.id.removeprefix(where).removeprefix("-")
    reason = expected_to_fail(request.node.originalname, case, where, features_found)
    if reason:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    return opened
