"""Every page of the console, clicked through as a newcomer would."""

import re

from playwright.async_api import Page, expect

from tests.browser.conftest import Town


async def test_a_tile_leads_to_its_backend_by_mouse_and_by_keyboard(town: Town, page: Page) -> None:
    await page.goto(f"{town.console}/")
    await page.locator("[data-tile=devices]").click()
    await expect(page).to_have_url(f"{town.console}/devices")
    await page.goto(f"{town.console}/")
    await page.locator("[data-tile=scoreboard]").focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{town.console}/scoreboard")


async def test_the_ways_in_the_head_lead_to_every_page(town: Town, page: Page) -> None:
    await page.goto(f"{town.console}/")
    for name, path in (
        ("Cricket", "cricket"),
        ("Collect", "collect"),
        ("Devices", "devices"),
        ("Data", "data"),
    ):
        await page.get_by_role("navigation").get_by_role("button", name=name).click()
        await expect(page).to_have_url(f"{town.console}/{path}")
        await expect(page.get_by_role("heading", level=1)).to_have_text(name)
        await expect(page.get_by_role("button", name=name)).to_have_attribute(
            "aria-current", "page"
        )


async def test_a_match_is_shown_live_and_a_phone_follows_it(town: Town, page: Page) -> None:
    """The Lock Screen shows what was pushed: through the API, the pipeline and the push service."""
    await page.goto(f"{town.console}/cricket")
    await page.locator("[role=link]", has_text="live").first.click()
    await expect(page.get_by_role("heading", name="Scorecard")).to_be_visible()
    await expect(page.get_by_role("heading", name="Key events")).to_be_visible()
    await expect(page.get_by_text("follow this match")).to_be_visible()
    await expect(page.get_by_label("Runs by over")).to_be_visible()
    await page.locator("[data-follow]").click()
    await expect(page.locator("[data-follow]")).to_contain_text("Unfollow")
    shown = page.locator("[data-iphone] [data-activity]")
    await expect(shown).to_be_visible(timeout=60_000)
    await expect(shown).to_contain_text("Harbour Herons")
    await page.get_by_role("button", name="Kill the app").click()
    await expect(page.get_by_text("the app is not running")).to_be_visible()
    await expect(shown).to_be_visible()
    await page.get_by_role("button", name="Swipe away").click()
    await expect(page.get_by_text("Nothing on the Lock Screen")).to_be_visible()


async def test_an_athlete_is_shown_with_the_model_in_3d_the_ledger_and_the_audit_trail(
    town: Town, page: Page
) -> None:
    await page.goto(f"{town.console}/collect")
    await expect(page.get_by_text(re.compile(r"parts earned"))).to_be_visible(timeout=60_000)
    await expect(page.locator("[data-model] canvas")).to_be_visible()
    await expect(page.get_by_text("STRAVA_CONNECTED")).to_be_visible()
    await expect(page.get_by_role("heading", name="Ledger")).to_be_visible()


async def test_playing_moves_the_guest_up_the_board_and_shows_the_history(
    town: Town, page: Page
) -> None:
    await page.goto(f"{town.console}/scoreboard")
    await page.locator("[data-play]").click()
    await expect(page.get_by_text("500 points")).to_be_visible()
    for _ in range(5):
        await page.locator("[data-play]").click()
    await expect(page.get_by_text("(you)")).to_be_visible()
    await expect(page.get_by_text("+500").first).to_be_visible()


async def test_the_fleet_is_listed_and_a_board_has_a_chart_for_each_sensor(
    town: Town, page: Page
) -> None:
    await page.goto(f"{town.console}/devices")
    row = page.locator("tbody tr").first
    await expect(row).to_contain_text("bme280")
    await row.click()
    await expect(page.get_by_role("heading", name="bme280_temp_c")).to_be_visible(timeout=60_000)
    await expect(page.get_by_label("humidity_pct over time")).to_be_visible()
    await expect(page.get_by_text("soil_moisture_pct").first).to_be_visible()


async def test_a_key_is_shown_once_and_can_be_revoked(town: Town, page: Page) -> None:
    await page.goto(f"{town.console}/devices")
    await page.get_by_label("What the new key is for").fill("a test of the console")
    await page.get_by_role("button", name="Make a key").click()
    key = await page.locator("[data-new-key]").inner_text()
    assert len(key.strip()) >= 20
    await page.get_by_role("button", name="I have it").click()
    await expect(page.get_by_text("a test of the console")).to_be_visible()
    await page.reload()
    assert key.strip() not in await page.content()
    await page.get_by_role("button", name="Revoke").first.click()
    await expect(page.get_by_text("revoked").first).to_be_visible()


async def test_tables_patterns_and_items_are_shown(town: Town, page: Page) -> None:
    await page.goto(f"{town.console}/data")
    await expect(page.get_by_text("active-matches").first).to_be_visible()
    find = page.get_by_label("Find a pattern, a table or a backend")
    await find.fill("Scan live fixtures")
    await expect(page.get_by_text("Scan live fixtures").first).to_be_visible()
    await page.get_by_role("combobox", name="Table").click()
    await page.get_by_role("option", name="cricket-leagues").click()
    await page.get_by_role("button", name="Look through the table").click()
    await expect(page.get_by_text("This is a scan")).to_be_visible()
    await page.get_by_role("button", name="Scan", exact=True).click()
    await expect(page.get_by_text("Lantern League").first).to_be_visible()
