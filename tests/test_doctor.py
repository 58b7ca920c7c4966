"""`tally doctor` names what is wrong, suggests a remedy, and changes nothing."""

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tally.cli import cli
from tally.store.sqlite.directory import MARKER_NAME
from tally.store.sqlite.files import FILE_NAME
from tests.embedded.harness import run_program
from tests.test_cli import environment

SECRET = "a-password-that-must-not-be-printed"


def findings(directory: Path, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and the findings by check."""
    result = CliRunner().invoke(
        cli, ["doctor", "--json"], env=environment(directory, **variables), catch_exceptions=False
    )
    assert result.stderr == ""
    assert SECRET not in result.stdout
    return result.exit_code, {finding["check"]: finding for finding in json.loads(result.stdout)}


def test_a_new_machine_is_fine_and_stays_untouched(tmp_path: Path) -> None:
    code, found = findings(tmp_path, TALLY_PORT="0")
    assert code == 0
    assert {check for check, finding in found.items() if finding["level"] == "failed"} == set()
    assert "the first start creates it" in found["data directory"]["message"]
    assert list(tmp_path.iterdir()) == []


def test_invalid_and_unknown_settings_are_named(tmp_path: Path) -> None:
    code, found = findings(tmp_path, TALLY_PORT="http")
    assert (code, found["settings"]["level"]) == (1, "failed")
    assert "TALLY_PORT must be an integer" in found["settings"]["message"]
    code, found = findings(tmp_path, TALLY_PROT="1", TALLY_PORT="0")
    assert (code, found["settings"]["level"]) == (0, "warning")
    assert "did you mean TALLY_PORT?" in found["settings"]["message"]


def test_a_lost_database_and_open_files_are_found(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / MARKER_NAME).write_text("an-id\n")
    (data / MARKER_NAME).chmod(0o644)
    (data / FILE_NAME).touch(mode=0o600)
    before = {path.name: path.stat().st_mode for path in data.iterdir()}
    code, found = findings(tmp_path, TALLY_PORT="0")
    assert (code, found["store"]["level"]) == (1, "failed")
    assert "is empty, and the data directory held a database" in found["store"]["message"]
    assert found["data directory"]["level"] == "warning"
    assert MARKER_NAME in found["data directory"]["message"]
    assert {path.name: path.stat().st_mode for path in data.iterdir()} == before


def test_files_from_the_future_reveal_a_wrong_clock(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.utime(data, (4e9, 4e9))
    code, found = findings(tmp_path, TALLY_PORT="0")
    assert (code, found["clock"]["level"]) == (1, "failed")


def test_a_port_in_use_is_a_warning(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, found = findings(tmp_path, TALLY_PORT=port)
    assert (code, found["port"]["level"]) == (0, "warning")
    assert port in found["port"]["message"]


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_unreachable_servers_are_found_and_passwords_are_not_printed(
    tmp_path: Path, scheme: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    code, found = findings(
        tmp_path,
        TALLY_PORT="0",
        TALLY_BACKENDS="scoreboard",
        DATABASE_URL=f"{scheme}://tally:{SECRET}@127.0.0.1:{port}/tally",
        REDIS_URL=f"redis://:{SECRET}@127.0.0.1:{port}",
    )
    assert code == 1
    assert found["postgresql"]["level"] == "failed"
    assert found["redis"]["level"] == "warning"
    assert "DATABASE_URL" in found["postgresql"]["remedy"]


def test_ports_that_do_not_exist_are_found(tmp_path: Path) -> None:
    code, found = findings(
        tmp_path,
        TALLY_PORT="0",
        TALLY_BACKENDS="scoreboard",
        DATABASE_URL=f"postgresql://tally:{SECRET}@127.0.0.1:99999/tally",
        REDIS_URL=f"redis://:{SECRET}@127.0.0.1:99999",
    )
    assert code == 1
    assert found["postgresql"]["level"] == "failed"
    assert found["redis"]["level"] == "warning"


async def test_servers_that_respond_are_compared_with_the_clock(tmp_path: Path) -> None:
    async with run_program(tmp_path / "servers") as servers:
        variables = {"DATABASE_URL": servers.dsn, "REDIS_URL": servers.url, "TALLY_PORT": "0"}
        code, found = await asyncio.to_thread(
            findings, tmp_path, TALLY_BACKENDS="scoreboard", **variables
        )
    assert code == 0
    assert {found[check]["level"] for check in ("postgresql", "redis", "clock")} == {"ok"}


def test_an_unreachable_dynamodb_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    code, found = findings(
        tmp_path,
        TALLY_PORT="0",
        TALLY_STORE_ENGINE="dynamodb",
        TALLY_DYNAMODB_ENDPOINT=f"http://127.0.0.1:{port}",
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY=SECRET,
    )
    assert (code, found["store"]["level"]) == (1, "failed")
    assert "AWS" in found["store"]["remedy"]
