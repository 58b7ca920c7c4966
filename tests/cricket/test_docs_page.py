"""docs/cricket.md: its lists match the code and its commands work."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.cricket.docs_page import PAGE, render_lists
from tests.needs import need_program

LIVE_COMMENT = "# List the live matches"


def test_the_lists_match_the_code() -> None:
    """Update the page with `python -m tests.cricket.docs_page`."""
    page = PAGE.read_text(encoding="utf-8")
    assert render_lists(page) == page


@pytest.mark.judge
async def test_the_commands_work_in_order(tmp_path: Path) -> None:
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
        urls = await asyncio.wait_for(_read_urls(program), 100)
        run = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            commands(),
            cwd=tmp_path,
            env=environ
            | {
                "TALLY": urls["Documentation"].removesuffix("/docs"),
                "ISSUER": urls["Sign-in for cricket"],
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await asyncio.wait_for(run.communicate(), 100)
    finally:
        program.send_signal(signal.SIGTERM)
        await program.communicate()
    assert run.returncode == 0, (output.decode()[-2000:], errors.decode()[-2000:])
    for expected in (
        b'"isLive":true',
        b'"hasPushToStartToken":true',
        b'"lockScreen"',
        b"event: display",
        b'"pollerState":"p',  # polling, or paused during a break
    ):
        assert expected in output, expected


def commands() -> str:
    """Return all shell blocks of the page, with a wait for the first poll."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    text = re.sub(r"export (TALLY|ISSUER)=.*\n", "", "".join(blocks))
    is_live = (
        'curl -sf $TALLY/cricket/matches/live -H "Authorization: Bearer $TOKEN" | grep -q matchId'
    )
    wait = f"for _ in $(seq 200); do {is_live} && break; sleep 0.2; done\n"
    return "set -euo pipefail\n" + text.replace(LIVE_COMMENT, wait + LIVE_COMMENT)


async def _read_urls(program: asyncio.subprocess.Process) -> dict[str, str]:
    """Parse the table of URLs that the program prints when it is ready."""
    assert program.stdout is not None
    urls: dict[str, str] = {}
    while line := (await program.stdout.readline()).decode():
        row = re.match(r"│ (.*?)(?: \(simulated\))?\s+│ (https?://\S+)", line)
        if row:
            urls[row[1].strip()] = row[2]
        if "Press Ctrl-C to stop" in line:
            return urls
    raise AssertionError("the program exited before it was ready")


def test_the_design_is_mapped_to_existing_code() -> None:
    """Every service and job that the design names has a row, and every mapped class exists."""
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition("<!-- design to code -->")[2].partition("\n#")[0]
    rows = re.findall(r"^\| ([A-Z][^|]+) \| (`[^|]+) \|$", section, re.MULTILINE)
    mapped = {name for design, _ in rows for name in design.split(", ")}
    triggers = (PAGE.parents[1] / "tests/cricket/designed.tsv").read_text(encoding="utf-8")
    named = set(re.findall(r"\b[A-Z]\w+(?:Job|Service|Provider)\b", triggers))
    assert named
    assert named <= mapped
    assert mapped >= {"MatchOrchestrator", "LACoordinator", "UnifiedDisplayState", "TokenManager"}
    source = "".join(
        path.read_text(encoding="utf-8") for path in (PAGE.parents[1] / "src").rglob("*.py")
    )
    classes = set(re.findall(r"^class (\w+)", source, re.MULTILINE))
    assert {name for _, code in rows for name in re.findall(r"`(\w+)`", code)} <= classes
