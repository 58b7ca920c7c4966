"""Starts one `tally up` and one Chromium for all tests; each test gets its own page.

Screenshots of every test are saved in `artefacts` to help with failures.
"""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.console.console_server import COOKIE
from tests.needs import need_program

ARTEFACTS = Path(__file__).parent.parent.parent / "artefacts"
START_SECONDS = 120
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--use-gl=swiftshader",
    "--enable-unsafe-swiftshader",
]
# On a busy machine a page takes longer than the default of five seconds.
expect.set_options(timeout=90_000)


@dataclass(frozen=True, slots=True)
class RunningDemo:
    """A running demo."""

    url: str
    data_dir: Path
    link: str
    cookie: str

    @property
    def console(self) -> str:
        return f"{self.url}/console"

    def secret(self, name: str) -> str:
        return (self.data_dir / name).read_text(encoding="utf-8").strip()

    async def sign_in(self, context: BrowserContext) -> None:
        """Sign in the operator who started the demo."""
        await context.add_cookies([{"name": COOKIE, "value": self.cookie, "url": self.url}])

    def get_json(self, path: str, **headers: str) -> Any:
        request = urllib.request.Request(self.url + path, headers=headers)  # noqa: S310  (a loopback URL)
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return json.load(response)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Return the Chromium that TALLY_TEST_CHROMIUM names, or the one on the PATH."""
    named = os.environ.get("TALLY_TEST_CHROMIUM")
    return Path(named) if named else need_program("chromium", "chromium")


@pytest.fixture(scope="package")
def demo(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """Run `tally up` for the tests of this directory; SIGTERM must end it with status 0.

    Until the end of the session, it would take processor time from all other tests.
    """
    assert chromium.exists()
    folder = tmp_path_factory.mktemp("demo")
    port, log = _free_port(), folder / "up.log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    environ |= {
        "TALLY_DATA_DIR": str(folder / "data"),
        "TALLY_LOG_LEVEL": "warning",
        "TALLY_SCOREBOARD_SCORE_LIMIT": "1000",  # a guest has to overtake the simulated players
    }
    with log.open("wb") as output:
        program = subprocess.Popen(
            [sys.executable, "-m", "tally.cli", "up", "--port", str(port)],
            cwd=folder,
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        link = _wait_until_up(program, log)
        yield RunningDemo(f"http://127.0.0.1:{port}", folder / "data", link, _follow(link))
    finally:
        program.send_signal(signal.SIGTERM)
        status = program.wait(60)
    assert status == 0, log.read_text(encoding="utf-8", errors="replace")[-3000:]


def _wait_until_up(program: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait for the summary that `tally up` prints once it listens; return the sign-in link."""
    link = ""
    with subprocess.Popen(
        ["tail", "-f", "-n", "+1", str(log)], stdout=subprocess.PIPE, text=True
    ) as tail:
        try:
            assert tail.stdout is not None
            for line in tail.stdout:
                if found := re.search(r"http://\S+/console/login\?code=\S+", line):
                    link = found[0]
                if "Press Ctrl-C to stop" in line:
                    return link
                assert program.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        finally:
            tail.terminate()
    raise AssertionError("tally up did not start")


def _follow(link: str) -> str:
    """Follow the sign-in link and return the cookie of the session."""
    response = httpx.get(link, timeout=30)
    assert response.status_code == 303, response.text
    return response.cookies[COOKIE]


@pytest.fixture(scope="package")
async def browser(chromium: Path) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)
        yield launched
        await launched.close()


@pytest.fixture
async def page(
    browser: Browser, demo: RunningDemo, request: pytest.FixtureRequest
) -> AsyncIterator[Page]:
    """Open a page, signed in to the demo.

    A JavaScript error or a violation of the content security policy fails the test.
    """
    opened = await browser.new_page(viewport={"width": 1280, "height": 1000})
    await demo.sign_in(opened.context)
    opened.set_default_timeout(90_000)
    errors = watch_errors(opened)
    yield opened
    ARTEFACTS.mkdir(exist_ok=True)
    name = re.sub(r"\W+", "-", request.node.name)
    await opened.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)
    await opened.close()
    assert errors == []


def watch_errors(page: Page) -> list[str]:
    """Return a list that collects JavaScript errors and violations of the security policy."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda line: errors.append(line.text) if "Content Security Policy" in line.text else None,
    )
    return errors


async def eventually(condition: Any, seconds: float = 60.0) -> Any:
    """Poll `condition` until it is true and return its result; pages update by polling."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (result := await condition()):
        assert asyncio.get_running_loop().time() < deadline, "condition not met in time"
        await asyncio.sleep(0.2)
    return result
