"""In production, the console requires a password and shows the backends that run."""

import asyncio
import os
import re
import sys
from pathlib import Path

from playwright.async_api import Browser, Page, expect

PASSWORD = "the-password-of-the-console-0123456789"


async def test_the_console_of_a_server_requires_its_password(
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
        await expect(page).to_have_url(f"{url}/console/login?next_path=/devices")
        await page.get_by_label("Password").fill("not it")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_text("Wrong password")).to_be_visible()
        await page.goto(f"{url}/console/data")
        await expect(page).to_have_url(f"{url}/console/login?next_path=/data")
        assert visitor_files(tmp_path) == [], "nothing is stored before sign-in"
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
    assert [path.parent for path in visitor_files(tmp_path)] == [tmp_path / "data" / "console"]


def visitor_files(folder: Path) -> list[Path]:
    """Return every file that NiceGUI stored about visitors."""
    return list(folder.rglob("storage-user-*"))


async def expect_only_devices(page: Page) -> None:
    """Tiles of absent backends say so, and only the store is listed."""
    for name in ("cricket", "collect", "scoreboard"):
        await expect(page.locator(f"[data-tile={name}]")).to_contain_text(
            "Not running on this instance"
        )
    tile = page.locator("[data-tile=devices]")
    await expect(tile.locator("[data-figure]")).to_have_text("0")
    await expect(tile.locator("[data-words]")).to_have_text("devices active")
    await expect(page.locator("[data-engine=store]")).to_contain_text("available")
    await expect(page.locator("[data-engine]")).to_have_count(1)
    await page.locator("[data-tile=scoreboard]").click()
    await expect(
        page.get_by_text("This instance does not run the scoreboard backend")
    ).to_be_visible()


async def _address(server: asyncio.subprocess.Process) -> str:
    assert server.stderr is not None
    while line := (await server.stderr.readline()).decode():
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if found:
            return found[0]
    raise AssertionError("the server exited before it listened")
