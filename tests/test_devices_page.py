"""The commands in docs/devices.md work in order on a new server."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.needs import need_program

PAGE = Path(__file__).parent.parent / "docs" / "devices.md"
_LISTENING = re.compile(r"http://127\.0\.0\.1:\d+")


def commands() -> str:
    """Return all shell blocks of the page; the environment sets the server URL."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return "set -euo pipefail\n" + "".join(blocks).replace(
        "export TALLY=http://127.0.0.1:8080\n", ""
    )


async def test_the_commands_work_in_order(tmp_path: Path) -> None:
    need_program("curl", "curl")
    environment = {
        **os.environ,
        "TALLY_DATA_DIR": "data",
        "TALLY_PORT": "0",
        "TALLY_LOG_FORMAT": "json",
        "TALLY_SHUTDOWN_DELAY": "0",
    }
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tally.cli",
        "serve",
        "devices",
        cwd=tmp_path,
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await asyncio.wait_for(_address(server), 60)
        run = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            commands(),
            cwd=tmp_path,
            env={
                **environment,
                "TALLY": address,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await asyncio.wait_for(run.communicate(), 120)
    finally:
        server.terminate()
        await server.wait()
    assert run.returncode == 0, errors.decode()
    expected = (
        b'"status":"registered"',
        b'"acknowledged_batch_ids":["AA:BB',
        b'"greenhouse-sensor-01"',
        b'"buckets":[{',
        b"22.5,",
        b"boards: 5 (",
    )
    for text in expected:
        assert text in output


async def _address(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    while line := await server.stderr.readline():
        found = _LISTENING.search(line.decode())
        if found:
            return found[0]
    pytest.fail("the server exited before it listened")
