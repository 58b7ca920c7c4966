"""The pages of boards and players in Chromium: a season closes live, and a player is moderated."""

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import RunningDemo


@pytest.mark.judge
async def test_a_season_closes_live_and_a_player_is_moderated(
    demo: RunningDemo, page: Page
) -> None:
    """A board that resets every minute, created on the page."""
    await page.goto(f"{demo.console}/scoreboard/boards")
    await page.get_by_label("ID", exact=True).fill("every-minute")
    await page.get_by_label("Name", exact=True).fill("Every minute")
    await page.get_by_label("Reset (cron)").fill("* * * * *")
    await page.locator("[data-create-board]").click()
    status = page.locator("[data-season]")
    await expect(status).to_have_text(re.compile(r"Season \d+, 0 players, closes in 0:0"))
    await expect(page.get_by_text(re.compile(r"^Season 1: 0 players, until"))).to_be_visible()
    await expect(status).to_have_text(re.compile(r"Season [2-9]"))

    await page.goto(f"{demo.console}/scoreboard")
    await page.get_by_role("listitem").first.click()
    await page.get_by_text("Open the player's page").click()
    await expect(page.get_by_text(re.compile(r"^Global: .* rank"))).to_be_visible()
    await page.get_by_label("Points to add").fill("7")
    await page.get_by_label("Reason").fill("A bug")
    await page.locator("[data-adjust]").click()
    await expect(page.get_by_text(re.compile(r"The score is [\d,]+, rank"))).to_be_visible()
    await expect(page.get_by_text("A bug", exact=True).first).to_be_visible()
    await page.locator("[data-ban]").click()
    await expect(page.get_by_text("This player is banned")).to_be_visible()
    await page.locator("[data-unban]").click()
    await expect(page.get_by_text(re.compile(r"^Global: .* rank"))).to_be_visible()
