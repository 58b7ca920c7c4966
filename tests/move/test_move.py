"""A move under load loses and duplicates no acknowledged write, whatever is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.store.sqlite import open_sqlite
from tests.move.harness import (
    MovingProcess,
    Servers,
    check_acknowledged,
    compare_all,
    environment,
    opened_sides,
    switch,
    wait_for,
)
from tests.move.move_program import TABLES
from tests.store.emulators import dynamodb_local


@pytest.fixture(scope="module")
def local_url() -> Iterator[str]:
    with dynamodb_local() as url:
        yield url


async def test_a_killed_and_resumed_move_to_dynamodb_keeps_every_acknowledged_write(
    local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = environment(tmp_path / "data", local_url)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with open_sqlite(tmp_path / "data") as engine:
        for table in TABLES:
            await engine.ensure_table(table)
    process = MovingProcess(variables, "dynamodb", tmp_path / "move.log")
    servers = Servers(variables, "embedded")
    async with servers.writing(1):
        await process.start()
        await wait_for(variables, lambda state: state.is_copied, process.check_running)
        await process.kill()
        await process.start()
        await switch(variables, "dynamodb")
        await wait_for(variables, lambda state: state.is_switching, process.check_running)
        await process.kill()
        await process.start()
        await wait_for(variables, lambda state: state.active == "dynamodb", process.check_running)
        written = servers.acknowledged.writes
        await wait_for(
            variables,
            lambda _: servers.acknowledged.writes > written + 20,
            process.check_running,
            servers.check_running,
        )
    async with opened_sides(variables) as sides:
        await check_acknowledged(sides.dynamodb.engine, servers.acknowledged)
        comparisons = await compare_all(sides, "dynamodb")
    assert not [found for found in comparisons if found.differences]
    assert await process.stop() == 0
    assert servers.acknowledged.writes > 100
