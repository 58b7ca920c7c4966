"""The `engine` fixture: runs a test on SQLite and on all available DynamoDB services.

- `sqlite`: always.
- `local`: AWS's DynamoDB Local, if Java and npm are available.
- `ministack`: an emulator that is closer to the current service.
- `dynoxide`: the emulator that is closest to the current service, on Linux with npm.
- `given`: the service at `TALLY_TEST_DYNAMODB_URL`.

Real DynamoDB is the specification. Where an emulator is known to differ (`differences.py`), the
test must fail.
"""

from collections.abc import AsyncIterator

import pytest

from tally.store.api import Engine
from tests.store.differences import expected_to_fail
from tests.store.emulators import engines, open_engine
from tests.store.features import Features, features
from tests.store.tables import TABLES

ENGINES = engines("local", "ministack", "dynoxide", "served")


@pytest.fixture(scope="session", params=ENGINES)
async def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """An open engine with all shared tables."""
    folder = tmp_path_factory.mktemp("sqlite")
    async with open_engine(request.param, folder, TABLES) as engine:
        yield engine


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
