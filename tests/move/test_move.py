"""A move under load loses and duplicates no acknowledged write, whatever is killed."""

import random
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.move.state import SideName, other_side
from tally.store.sqlite import open_sqlite
from tests.move.harness import (
    MovingProcess,
    Servers,
    check_acknowledged,
    environment,
    kill_at_random,
    opened_sides,
    switch,
    wait_for,
    wait_until_equal,
)
from tests.move.move_program import TABLES
from tests.store.emulators import dynamodb_local, ministack


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of DynamoDB Local."""
    with dynamodb_local() as found:
        yield found


@pytest.fixture
def variables(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of a move; each test has its own tables."""
    found = environment(tmp_path / "data", url, f"{secrets.token_hex(4)}-")
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


async def test_a_killed_and_resumed_move_keeps_every_acknowledged_write(
    variables: dict[str, str], tmp_path: Path
) -> None:
    async with open_sqlite(tmp_path / "data") as engine:
        for table in TABLES:
            await engine.ensure_table(table)
    process = MovingProcess(variables, "dynamodb", tmp_path / "move.log")
    servers = Servers(variables, "embedded")
    checks = process.check_running, servers.check_running
    async with process:
        async with servers.writing(1):
            await wait_for(variables, lambda state: state.is_copied, *checks)
            await process.kill()
            await process.start()
            await switch(variables, "dynamodb")
            await wait_for(variables, lambda state: state.is_switching, *checks)
            await process.kill()
            await process.start()
            await wait_for(variables, lambda state: state.active == "dynamodb", *checks)
            await servers.wait_for_writes(20, *checks)
        await check_moved(variables, servers, "dynamodb")
        assert await process.stop() == 0
    assert servers.acknowledged.writes > 20


@pytest.mark.judge
@pytest.mark.timeout(900)
@pytest.mark.parametrize("origin", ["embedded", "dynamodb"])
async def test_a_move_under_load_goes_there_and_back_despite_kills(
    variables: dict[str, str], tmp_path: Path, origin: SideName
) -> None:
    """Both directions, three switches each, with kills of the moving process at random times."""
    target, rng = other_side(origin), random.Random(origin)
    async with opened_sides(variables) as sides:
        for table in TABLES:
            await sides.side(origin).engine.ensure_table(table)
    process = MovingProcess(variables, target, tmp_path / "move.log")
    servers = Servers(variables, origin)
    checks = process.check_running, servers.check_running
    async with process:
        async with servers.writing(4):
            await wait_for(variables, lambda state: state.is_copied, *checks)
            for to in (target, origin, target):
                await switch(variables, to)
                await kill_at_random(process, rng, times=3)
                await wait_for(variables, lambda state: state.active == to, *checks)  # noqa: B023
                await kill_at_random(process, rng, times=1)
                await servers.wait_for_writes(100, *checks)
        await check_moved(variables, servers, target)
        assert await process.stop() == 0
    assert servers.acknowledged.rejected > 0


@pytest.mark.judge
@pytest.mark.timeout(900)
async def test_a_move_to_ministack_under_load_keeps_every_acknowledged_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the switch: ministack cannot continue a stream after a record."""
    with ministack("dynamodb,dynamodbstreams") as url:
        variables = environment(tmp_path / "data", url, "")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        async with open_sqlite(tmp_path / "data") as engine:
            for table in TABLES:
                await engine.ensure_table(table)
        servers = Servers(variables, "embedded")
        async with MovingProcess(variables, "dynamodb", tmp_path / "move.log") as process:
            checks = process.check_running, servers.check_running
            async with servers.writing(2):
                await wait_for(variables, lambda state: state.is_copied, *checks)
                await kill_at_random(process, random.Random(7), times=2)
                await switch(variables, "dynamodb")
                await kill_at_random(process, random.Random(8), times=2)
                await wait_for(variables, lambda state: state.active == "dynamodb", *checks)
                await servers.wait_for_writes(50, *checks)
            async with opened_sides(variables) as sides:
                await check_acknowledged(sides.dynamodb.engine, servers.acknowledged)


async def check_moved(variables: dict[str, str], servers: Servers, active: SideName) -> None:
    """Every acknowledged write is in the active store, and the other store follows it."""
    async with opened_sides(variables) as sides:
        await check_acknowledged(sides.side(active).engine, servers.acknowledged)
        await wait_until_equal(sides, active)
        await check_acknowledged(sides.side(other_side(active)).engine, servers.acknowledged)
