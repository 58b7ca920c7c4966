"""The page of cricket says what is so, and its commands work as they stand."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

from tests.cricket.docs_page import PAGE, filled
from tests.needs import need_program


def test_the_lists_of_the_page_are_those_of_the_code() -> None:
    """Made by: python -m tests.cricket.docs_page."""
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page


async def test_the_commands_of_the_page_work_in_order(tmp_path: Path) -> None:
    need_program("curl", "curl")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    environ |= {"TALLY_LOG_LEVEL": "error", "COLUMNS": "200"}
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tally.cli",
        "up",
        "--only",
        "cricket",
        "--port",
        "0",
        cwd=tmp_path,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        places = await asyncio.wait_for(_places(program), 100)
        run = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            commands(),
            cwd=tmp_path,
            env=environ
            | {
                "TALLY": places["Documentation"].removesuffix("/docs"),
                "ISSUER": places["Sign-in for cricket"],
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await asyncio.wait_for(run.communicate(), 100)
    finally:
        program.send_signal(signal.SIGTERM)
        await program.communicate()
    assert run.returncode == 0, (output.decode()[-2000:], errors.decode()[-2000:])
    for told in (
        b'"isLive":true',
        b'"hasPushToStartToken":true',
        b'"lockScreen"',
        b"event: display",
        b'"pollerState":"polling"',
    ):
        assert told in output, told


def commands() -> str:
    """All shell blocks of the page; it waits for the first poll, since a page has no clock."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    text = re.sub(r"export (TALLY|ISSUER)=.*\n", "", "".join(blocks))
    is_live = (
        'curl -sf $TALLY/cricket/matches/live -H "Authorization: Bearer $TOKEN" | grep -q matchId'
    )
    wait = f"for _ in $(seq 200); do {is_live} && break; sleep 0.2; done\n"
    return "set -euo pipefail\n" + text.replace("# What is live now", wait + "# What is live now")


async def _places(program: asyncio.subprocess.Process) -> dict[str, str]:
    """What the table says that is printed when everything is up."""
    assert program.stdout is not None
    found: dict[str, str] = {}
    while line := (await program.stdout.readline()).decode():
        row = re.match(r"│ (.*?)(?: \(simulated\))?\s+│ (https?://\S+)", line)
        if row:
            found[row[1].strip()] = row[2]
        if "Press Ctrl-C to stop" in line:
            return found
    raise AssertionError("the program ended before it was up")
