"""In production the console is behind a password, and shows the backends that run there."""

import asyncio
import os
import re
import sys
from pathlib import Path

from playwright.async_api import Browser, Page, expect

PASSWORD = "the-password-of-the-console-0123456789"


async def test_nobody_sees_the_console_of_a_server_without_its_password(
    browser: Browser, tmp_path: Path
) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    environ |= {"TALLY_CONSOLE_PASSWORD": PASSWORD, "TALLY_LOG_FORMAT": "json", "TALLY_PORT": "0"}
    words = (sys.executable, "-m", "tally.cli", "serve", "devices", "--console")
    server = await asyncio.create_subprocess_exec(
        *words, cwd=tmp_path, env=environ, stderr=asyncio.subprocess.PIPE
    )
    try:
        url = await asyncio.wait_for(_address(server), 60)
        page = await browser.new_page()
        await page.goto(f"{url}/console/devices")
        await expect(page).to_have_url(f"{url}/console/login?wanted=/devices")
        await page.get_by_label("Password").fill("not it")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_text("This is not the password")).to_be_visible()
        await page.goto(f"{url}/console/data")
        await expect(page).to_have_url(f"{url}/console/login?wanted=/data")
        assert kept_in(tmp_path) == [], "of one who has not signed in, nothing is kept"
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Data")
        await page.goto(f"{url}/console/")
        await expect_only_devices(page)
        await page.close()
    finally:
        server.terminate()
        await server.communicate()
    assert server.returncode == 0
    assert [path.parent for path in kept_in(tmp_path)] == [tmp_path / "data" / "console"]


def kept_in(folder: Path) -> list[Path]:
    """What NiceGUI has written of visitors, anywhere."""
    return list(folder.rglob("storage-user-*"))


async def expect_only_devices(page: Page) -> None:
    """The tiles of backends that do not run here say so, and nothing is told of servers that only they need."""
    for name in ("cricket", "collect", "scoreboard"):
        await expect(page.locator(f"[data-tile={name}]")).to_contain_text("Not started here")
    tile = page.locator("[data-tile=devices]")
    await expect(tile.locator("[data-figure]")).to_have_text("0")
    await expect(tile.locator("[data-words]")).to_have_text("boards awake")
    await expect(page.locator("[data-engine=store]")).to_contain_text("works")
    await expect(page.locator("[data-engine]")).to_have_count(1)
    await page.locator("[data-tile=scoreboard]").click()
    await expect(page.get_by_text("The scoreboard backend is not started here")).to_be_visible()


async def _address(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    while line := (await server.stderr.readline()).decode():
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if found:
            return found[0]
    raise AssertionError("the server ended before it listened")
