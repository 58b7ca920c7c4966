"""A data directory whose PostgreSQL was set up once, since that takes a second: to be used in turn, or copied."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tally.embedded.postgres import open_postgres
from tally.kit.clock import SystemClock


@pytest.fixture(scope="session")
async def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose PostgreSQL has been started and stopped.

    Each test leaves it so, and uses tables of its own.
    """
    directory = tmp_path_factory.mktemp("data")
    async with open_postgres(directory, SystemClock(), durable=False):
        pass
    return directory


@pytest.fixture
def make(directory: Path) -> Callable[[Path], Path]:
    """Makes a data directory like that anywhere."""

    def copy(other: Path) -> Path:
        shutil.copytree(directory, other)
        return other

    return copy
