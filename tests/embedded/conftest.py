"""A data directory with an initialized PostgreSQL, created once because that takes a second."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tally.embedded.postgres import open_postgres
from tally.kit.clock import SystemClock


@pytest.fixture(scope="session")
async def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose PostgreSQL is stopped.

    Tests share it: each leaves the servers stopped and uses its own tables.
    """
    directory = tmp_path_factory.mktemp("data")
    async with open_postgres(directory, SystemClock(), durable=False):
        pass
    return directory


@pytest.fixture
def copy_directory(directory: Path) -> Callable[[Path], Path]:
    """Copies the data directory to another path."""

    def copy(target: Path) -> Path:
        shutil.copytree(directory, target)
        return target

    return copy
