"""A PostgreSQL that was set up once, to be copied: setting one up takes a second."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tally.embedded.postgres import open_postgres
from tally.kit.clock import SystemClock


@pytest.fixture(scope="session")
async def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose PostgreSQL has been started and stopped."""
    folder = tmp_path_factory.mktemp("model")
    async with open_postgres(folder, SystemClock(), durable=False):
        pass
    return folder


@pytest.fixture
def make(model: Path) -> Callable[[Path], Path]:
    """Makes a data directory like that anywhere."""

    def copy(folder: Path) -> Path:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        return folder

    return copy


@pytest.fixture
def folder(make: Callable[[Path], Path], tmp_path: Path) -> Path:
    """A data directory of one's own."""
    return make(tmp_path / "data")
