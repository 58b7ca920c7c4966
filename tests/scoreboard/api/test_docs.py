"""The scoreboard's page: its commands work, and the codes and tests it names exist."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.needs import need_program
from tests.scoreboard.api.harness import ADMIN, API, INTERNAL, run_scoreboard, server_settings
from tests.scoreboard.api.servers import SharedServers
from tests.scoreboard.api.test_openapi import CODES

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "docs" / "scoreboard.md").read_text(encoding="utf-8")


def commands() -> str:
    """Return all shell blocks of the page, without the server's address."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return "".join(blocks).replace("export TALLY=http://127.0.0.1:8080\n", "")


@pytest.mark.judge
async def test_the_commands_of_the_page_work(shared_servers: SharedServers, tmp_path: Path) -> None:
    """From registration to deletion of the account."""
    need_program("curl", "curl")
    bash, script = need_program("bash", "bash"), commands()
    assert script.count("curl ") >= 12
    (tmp_path / "scoreboard-internal.key").write_text(INTERNAL)
    (tmp_path / "operator.token").write_text(ADMIN)
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path)
    ) as harness:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        process = await asyncio.create_subprocess_exec(
            bash,
            "-eu",
            "-c",
            script,
            env=os.environ | {"TALLY": harness.url, "TALLY_DATA_DIR": str(tmp_path), "PATH": path},
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, (out[-2000:], err[-2000:])
        leaderboard = await harness.leaderboard()
    assert out.count(b'"new_score":60,"score_added":60,"rank":1') == 2
    for word in (
        b"event: leaderboard",
        b'"percentile":100.0',
        b'"level":3',
        b'"is_current":true',
        b'"found":0',
        b"violations: 0",
    ):
        assert word in out, (word, out[-2000:])
    assert leaderboard["total_players"] == 5, (
        "the simulated players remain, the deleted one is gone"
    )


def test_the_page_lists_every_error_code() -> None:
    """Except the codes of plain HTTP errors."""
    data = set(re.findall(r"^\|(.*?)\| \d{3} \|", PAGE, re.MULTILINE))
    assert {code for row in data for code in re.findall(r"`([a-z_]+)`", row)} == CODES - {
        "too_large",
        "unsupported_media",
    }


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(test_api_\w+\.py)`, `(test_\w+)`", PAGE)
    assert len(named) >= 8
    for file, test in named:
        assert f"def {test}(" in (Path(__file__).parent / file).read_text(encoding="utf-8"), (
            file,
            test,
        )
    for path in re.findall(r"`(tests/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path
    assert f"$TALLY{API}" in PAGE
