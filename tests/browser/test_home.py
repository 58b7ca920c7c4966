"""The home page updates live and reports components that are unavailable."""

import re

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import RunningDemo, eventually

# Tile, value, unit and details. The first part is minted about a minute after the start.
HEADLINES = (
    ("cricket", r"[1-9]", r"match(es)? live", r"on \d+ Lock Screens · [\d.]+ pushes/s · scores"),
    ("collect", r"\d", r"parts? minted this month", r"workouts? since start"),
    ("scoreboard", r"[1-9]", r"top score", r"leads \d+ players?"),
    ("devices", r"[1-9]", r"devices? active", r"readings/s"),
)
FACTS = {
    "store": ("SQLite", "File", "Write-ahead log", "Tables", "Reads", "Writes", "Mean time"),
    "postgresql": ("embedded", "Size", "Connections", "Transactions", "Cache hit ratio"),
    "redis": ("embedded", "Valkey", "Memory", "Keys", "Operations", "Hit ratio"),
}


async def number_in(element: Locator) -> float:
    """Return the first number in the element, or -1 if there is none yet."""
    found = re.search(r"[\d,]+(\.\d+)?", await element.inner_text())
    return float(found[0].replace(",", "")) if found else -1


async def test_every_tile_shows_its_headline(demo: RunningDemo, page: Page) -> None:
    await page.goto(f"{demo.console}/")
    for name, figure, words, details in HEADLINES:
        tile = page.locator(f"[data-tile={name}]")
        await expect(tile.locator("[data-figure]")).to_have_text(re.compile(figure), timeout=60_000)
        await expect(tile.locator("[data-words]")).to_have_text(re.compile(words))
        await expect(tile.locator("[data-details]")).to_have_text(re.compile(details))
        await expect(tile.locator("[data-traffic]")).to_have_text(
            re.compile(r"^[\d.,]+ requests/s")
        )
        await expect(tile.locator("[data-health]")).to_contain_text("healthy", timeout=60_000)


async def test_headlines_and_traffic_update_live(demo: RunningDemo, page: Page) -> None:
    """Points, readings and requests increase without a click."""
    await page.goto(f"{demo.console}/")
    points, stored = (
        page.locator("[data-tile=scoreboard] [data-figure]"),
        page.locator("[data-tile=devices] [data-details]"),
    )
    traffic = page.locator("[data-tile=devices] [data-traffic]")
    await expect(points).to_have_text(re.compile(r"\d"))
    before, text = await number_in(points), await stored.inner_text()

    async def moves() -> bool:
        return (
            await number_in(points) > before
            and await stored.inner_text() != text
            and await number_in(traffic) > 0
        )

    await eventually(moves)


async def test_engines_show_their_statistics(demo: RunningDemo, page: Page) -> None:
    await page.goto(f"{demo.console}/")
    for engine, labels in FACTS.items():
        element = page.locator(f"[data-engine={engine}]")
        await expect(element).to_contain_text("available")
        for label in labels:
            await expect(element).to_contain_text(label)
    await expect(page.locator("[data-engine=store]")).to_contain_text(
        re.compile(r"Reads\s*[\d.,]+/s")
    )
    await expect(page.locator("[data-engine=postgresql]")).to_contain_text(
        re.compile(r"Transactions\s*[\d.,]+/s")
    )
    await expect(page.locator("[data-engine=redis]")).to_contain_text(re.compile(r"Keys\s*[\d,]+"))


async def test_jobs_are_listed_with_their_last_outcome(demo: RunningDemo, page: Page) -> None:
    await page.goto(f"{demo.console}/")
    for name, what in (
        ("ttl-sweep", "Deletes expired items"),
        ("cricket-live-score", "Polls scores"),
    ):
        row = page.locator("tbody tr", has_text=name)
        await expect(row).to_contain_text(what)
        await expect(row).to_contain_text(re.compile(r"succeeded, .*(ago|just now)|running"))


@pytest.mark.judge
async def test_the_leaderboard_works_while_redis_is_stopped(demo: RunningDemo, page: Page) -> None:
    """The home page reports the stopped Redis, and the scoreboard tile keeps updating."""
    await page.goto(f"{demo.console}/scoreboard")
    await expect(page.get_by_text("Redis available")).to_be_visible()
    await page.get_by_role("switch", name="Redis running").click()
    await expect(page.get_by_text("Redis unavailable")).to_be_visible(timeout=60_000)
    await page.locator("[data-play]").click()
    await expect(page.get_by_text("points:")).to_be_visible()
    await page.goto(f"{demo.console}/")
    tile = page.locator("[data-tile=scoreboard]")
    await expect(page.locator("[data-engine=redis]")).to_contain_text(
        "stopped on the scoreboard page"
    )
    await expect(page.locator("[data-engine=postgresql]")).to_contain_text("available")
    await expect(tile.locator("[data-health]")).to_contain_text("Redis unavailable")
    await expect(tile.locator("[data-words]")).to_have_text("top score")
    await page.goto(f"{demo.console}/scoreboard")
    await page.get_by_role("switch", name="Redis running").click()
    await expect(page.get_by_text("Redis available")).to_be_visible(timeout=60_000)
    await page.goto(f"{demo.console}/")
    await expect(page.locator("[data-engine=redis]")).to_contain_text("available")
    await expect(tile.locator("[data-health]")).to_contain_text("healthy", timeout=60_000)
