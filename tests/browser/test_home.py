"""The first page: what moves on it, and what it says when a part is away."""

import re

from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import Town, eventually

# The headline of each tile: its figure (the first part is minted a minute after the start), what it
# is of, and what is beside it.
HEADLINES = (
    ("cricket", r"[1-9]", r"match(es)? live", r"on \d+ Lock Screens · [\d.]+ pushes/s"),
    ("collect", r"\d", r"parts? minted this month", r"workouts? since the start"),
    ("scoreboard", r"[1-9]", r"points in the lead", r"is first of \d+ players?"),
    ("devices", r"[1-9]", r"boards? awake", r"readings/s"),
)
FACTS = {
    "store": ("SQLite", "File", "Log", "Tables", "Reads", "Writes", "Mean time"),
    "postgresql": ("embedded", "Size", "Connections", "Transactions", "From memory"),
    "redis": ("embedded", "Valkey", "Memory", "Keys", "Operations", "Found in it"),
}


async def number_in(place: Locator) -> float:
    """The first number that is told there; -1 where there is none yet."""
    found = re.search(r"[\d,]+(\.\d+)?", await place.inner_text())
    return float(found[0].replace(",", "")) if found else -1


async def test_every_tile_leads_with_what_its_backend_is_there_for(town: Town, page: Page) -> None:
    await page.goto(f"{town.console}/")
    for name, figure, words, details in HEADLINES:
        tile = page.locator(f"[data-tile={name}]")
        await expect(tile.locator("[data-figure]")).to_have_text(re.compile(figure), timeout=60_000)
        await expect(tile.locator("[data-words]")).to_have_text(re.compile(words))
        await expect(tile.locator("[data-details]")).to_have_text(re.compile(details))
        await expect(tile.locator("[data-traffic]")).to_have_text(
            re.compile(r"^[\d.,]+ requests/s")
        )
        await expect(tile.locator("[data-health]")).to_contain_text("well", timeout=60_000)


async def test_headlines_and_traffic_move_while_one_looks(town: Town, page: Page) -> None:
    """Players play and boards measure: points, readings and requests rise without a click."""
    await page.goto(f"{town.console}/")
    points, stored = (
        page.locator("[data-tile=scoreboard] [data-figure]"),
        page.locator("[data-tile=devices] [data-details]"),
    )
    traffic = page.locator("[data-tile=devices] [data-traffic]")
    await expect(points).to_have_text(re.compile(r"\d"))
    before, told = await number_in(points), await stored.inner_text()

    async def moves() -> bool:
        return (
            await number_in(points) > before
            and await stored.inner_text() != told
            and await number_in(traffic) > 0
        )

    await eventually(moves)


async def test_the_store_and_the_databases_tell_their_figures(town: Town, page: Page) -> None:
    await page.goto(f"{town.console}/")
    for engine, told in FACTS.items():
        place = page.locator(f"[data-engine={engine}]")
        await expect(place).to_contain_text("works")
        for words in told:
            await expect(place).to_contain_text(words)
    await expect(page.locator("[data-engine=store]")).to_contain_text(
        re.compile(r"Reads\s*[\d.,]+/s")
    )
    await expect(page.locator("[data-engine=postgresql]")).to_contain_text(
        re.compile(r"Transactions\s*[\d.,]+/s")
    )
    await expect(page.locator("[data-engine=redis]")).to_contain_text(re.compile(r"Keys\s*[\d,]+"))


async def test_jobs_are_listed_with_how_they_went(town: Town, page: Page) -> None:
    await page.goto(f"{town.console}/")
    for name, what in (
        ("ttl-sweep", "Deletes what has expired"),
        ("cricket-live-score", "Polls the scores"),
    ):
        row = page.locator("tbody tr", has_text=name)
        await expect(row).to_contain_text(what)
        await expect(row).to_contain_text(re.compile(r"succeeded, .*(ago|just now)|runs now"))


async def test_without_redis_the_board_goes_on_and_with_it_again_it_is_back(
    town: Town, page: Page
) -> None:
    """It is switched off by hand: the first page says so, of the scoreboard too, whose tile is as alive as before."""
    await page.goto(f"{town.console}/scoreboard")
    await expect(page.get_by_text("Redis answers")).to_be_visible()
    await page.get_by_role("switch", name="Redis runs").click()
    await expect(page.get_by_text("Redis is away")).to_be_visible(timeout=60_000)
    await page.locator("[data-play]").click()
    await expect(page.get_by_text("points:")).to_be_visible()
    await page.goto(f"{town.console}/")
    tile = page.locator("[data-tile=scoreboard]")
    await expect(page.locator("[data-engine=redis]")).to_contain_text("away: switched off")
    await expect(page.locator("[data-engine=postgresql]")).to_contain_text("works")
    await expect(tile.locator("[data-health]")).to_contain_text("Redis is away")
    await expect(tile.locator("[data-words]")).to_have_text("points in the lead")
    await page.goto(f"{town.console}/scoreboard")
    await page.get_by_role("switch", name="Redis runs").click()
    await expect(page.get_by_text("Redis answers")).to_be_visible(timeout=60_000)
    await page.goto(f"{town.console}/")
    await expect(page.locator("[data-engine=redis]")).to_contain_text("works")
    await expect(tile.locator("[data-health]")).to_contain_text("well", timeout=60_000)
