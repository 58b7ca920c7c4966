"""The first start creates one operator; later starts create none."""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tally.app import open_engine
from tally.errors import Unauthenticated
from tally.instance.first_operator import ensure_first_operator
from tally.instance.operators import OperatorAccounts, open_operators
from tally.kit.clock import SystemClock
from tally.kit.operators import Role
from tally.settings import Secret, Settings, SettingsError
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.instance.conftest import StoreTarget

OLD_KEYS = ("collect-admin.key", "cricket-admin.key", "devices-admin.key", "scoreboard-admin.key")


@asynccontextmanager
async def open_instance(settings: Settings) -> AsyncIterator[OperatorAccounts]:
    """Open the operators as a process with these settings does."""
    clock = SystemClock()
    async with open_engine(settings, clock) as engine:
        yield open_operators(settings, Store(engine, clock), clock)


@pytest.fixture
async def settings(store_target: StoreTarget, tmp_path: Path) -> Settings:
    return await store_target.new_settings(data_dir=tmp_path / "data")


def token_in(settings: Settings) -> str:
    return (settings.data_dir / "operator.token").read_text(encoding="utf-8").strip()


async def test_the_first_start_creates_an_operator_and_a_private_file(settings: Settings) -> None:
    async with open_instance(settings) as operators:
        path = await ensure_first_operator(operators, settings)
        assert path == settings.data_dir / "operator.token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        operator = await operators.authenticate(token_in(settings))
        assert (operator.name, operator.role) == ("admin", Role.OPERATOR)
        (account,) = await operators.list()
        assert account.expires_at is None
        (record,), _ = await operators.changes(None, 10)
        assert (record.operator, record.action, record.target) == ("tally", "operator_add", "admin")


async def test_an_upgraded_data_directory_gets_an_operator_and_ignores_old_keys(
    settings: Settings,
) -> None:
    settings.data_dir.mkdir()
    for name in OLD_KEYS:
        (settings.data_dir / name).write_text("0" * 64, encoding="utf-8")
    async with open_instance(settings) as operators:
        assert await ensure_first_operator(operators, settings) is not None
        await operators.authenticate(token_in(settings))
        with pytest.raises(Unauthenticated):
            await operators.authenticate("0" * 64)
    for name in OLD_KEYS:
        assert (settings.data_dir / name).read_text(encoding="utf-8") == "0" * 64


async def test_a_later_start_keeps_the_operator(settings: Settings) -> None:
    async with open_instance(settings) as operators:
        await ensure_first_operator(operators, settings)
        first = token_in(settings)
    async with open_instance(settings) as operators:
        assert await ensure_first_operator(operators, settings) is not None
        assert token_in(settings) == first
        assert len(await operators.list()) == 1


async def test_instances_that_start_at_once_create_one_operator(settings: Settings) -> None:
    """They share the data directory, and each finds the valid token in it."""
    async with AsyncExitStack() as stack:
        instances = [await stack.enter_async_context(open_instance(settings)) for _ in range(4)]
        paths = await asyncio.gather(
            *(ensure_first_operator(operators, settings) for operators in instances)
        )
        assert paths == [settings.data_dir / "operator.token"] * 4
        await instances[0].authenticate(token_in(settings))
        assert len(await instances[0].list()) == 1


async def test_only_one_of_several_data_directories_gets_the_token(
    settings: Settings, tmp_path: Path
) -> None:
    """On a shared store; no instance keeps a file with an invalid token."""
    each = [replace(settings, data_dir=tmp_path / f"data-{number}") for number in range(3)]
    async with open_instance(settings) as operators:
        paths = await asyncio.gather(*(ensure_first_operator(operators, one) for one in each))
        (winner,) = [path for path in paths if path is not None]
        files = [one.data_dir / "operator.token" for one in each]
        assert [path for path in files if path.exists()] == [winner]
        assert len(await operators.list()) == 1


async def test_a_crash_after_writing_the_file_loses_nothing(settings: Settings) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / "operator.token").write_text(f"tally-admin-{'a' * 64}\n", encoding="utf-8")
    async with open_instance(settings) as operators:
        assert await ensure_first_operator(operators, settings) is not None
        assert (await operators.authenticate(f"tally-admin-{'a' * 64}")).name == "admin"


async def test_an_unusable_file_prevents_the_first_start(settings: Settings) -> None:
    settings.data_dir.mkdir()
    (settings.data_dir / "operator.token").write_text("x" * 64, encoding="utf-8")
    async with open_instance(settings) as operators:
        with pytest.raises(SettingsError, match="delete the file to create a new one"):
            await ensure_first_operator(operators, settings)
        assert await operators.list() == []


async def test_without_operators_a_later_start_creates_none(settings: Settings) -> None:
    """`tally operator add` recovers access."""
    async with open_instance(settings) as operators:
        await ensure_first_operator(operators, settings)
        await operators.remove("admin")
    async with open_instance(settings) as operators:
        assert await ensure_first_operator(operators, settings) is None
        assert await operators.list() == []
        token = await operators.add("admin", Role.OPERATOR, None)
        assert (await operators.authenticate(token)).name == "admin"


async def test_an_operator_added_before_the_first_start_is_enough(settings: Settings) -> None:
    async with open_instance(settings) as operators:
        await operators.add("ada", Role.OPERATOR, None)
        assert await ensure_first_operator(operators, settings) is None
        assert [account.name for account in await operators.list()] == ["ada"]
    assert not (settings.data_dir / "operator.token").exists()


async def test_a_configured_token_makes_the_first_operator_unnecessary(settings: Settings) -> None:
    """So an instance can start with a data directory that it cannot write."""
    configured = replace(settings, operator_token=Secret("x" * 40))
    async with open_instance(configured) as operators:
        assert await ensure_first_operator(operators, configured) is None
        assert await operators.list() == []
    assert not (settings.data_dir / "operator.token").exists()


async def test_without_tables_the_instance_starts_without_an_operator(tmp_path: Path) -> None:
    """As on DynamoDB before `tally schema create`."""
    settings, clock = Settings(data_dir=tmp_path), SystemClock()
    async with open_sqlite(tmp_path) as engine:
        operators = open_operators(settings, Store(engine, clock), clock)
        assert await ensure_first_operator(operators, settings) is None
    assert not (tmp_path / "operator.token").exists()
