"""`tally move`: output and exit codes, with the tables of all backends."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tally.store.sqlite import open_sqlite
from tally.store.wire.server import serving_store
from tests.move.harness import environment
from tests.test_cli import started, tally


@pytest.mark.parametrize("command", ["switch", "finish"])
def test_commands_without_a_move_say_how_to_start_one(tmp_path: Path, command: str) -> None:
    result = tally(tmp_path, "move", command)
    assert result.returncode == 2, result
    assert "start one with `tally move start`" in result.stderr


def test_a_directory_without_a_store_cannot_be_moved_to_dynamodb(tmp_path: Path) -> None:
    result = tally(tmp_path, "move", "start", "--to", "dynamodb")
    assert result.returncode == 2, result
    assert "has no embedded store to move" in result.stderr
    assert json.loads(tally(tmp_path, "move", "status", "--json").stdout) is None


@pytest.mark.judge
async def test_the_commands_move_all_tables_there_and_back(tmp_path: Path) -> None:
    """Copies, verifies, switches, returns and finishes; each server sees the same operators."""
    async with (
        open_sqlite(tmp_path / "served") as served,
        serving_store(served) as url,
    ):
        variables = {**environment(tmp_path / "data", url, ""), "TALLY_SHUTDOWN_DELAY": "0"}
        await asyncio.to_thread(_move_there_and_back, tmp_path, variables)


def _move_there_and_back(directory: Path, variables: dict[str, str]) -> None:
    def run(*words: str, code: int = 0, **more: str) -> str:
        result = tally(directory, *words, **(variables | more))
        assert result.returncode == code, result
        return result.stdout

    run("operator", "add", "ann", "--role", "operator")
    with started(directory, "move", "start", "--to", "dynamodb", **variables) as process:
        _wait_until_copied(directory, variables)
        assert "tables are equal" in run("move", "verify")
        assert "TALLY_STORE_ENGINE=dynamodb" in run("move", "switch")
        assert "Active store: dynamodb; embedded follows it" in run("move", "status")
        run("operator", "add", "bob", "--role", "viewer", TALLY_STORE_ENGINE="dynamodb")
        rejected = tally(directory, "operator", "add", "eve", "--role", "viewer", **variables)
        assert rejected.returncode == 2
        assert "does not accept writes" in rejected.stderr
        assert "TALLY_STORE_ENGINE=sqlite" in run("move", "back")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert "TALLY_STORE_ENGINE=sqlite" in run("move", "finish")
    listed = run("operator", "list")
    assert "ann" in listed
    assert "bob" in listed


def _wait_until_copied(directory: Path, variables: dict[str, str]) -> None:
    for _ in range(60):
        state = json.loads(tally(directory, "move", "status", "--json", **variables).stdout)
        if state is not None and all(table["is_copied"] for table in state["tables"].values()):
            return
    pytest.fail("the copy did not end")
