"""Every page of the console works as a newcomer would click through it."""

import re

import httpx
from playwright.async_api import Page, expect

from tests.browser.conftest import RunningDemo, eventually


async def test_a_tile_links_to_its_backend_with_mouse_and_keyboard(
    demo: RunningDemo, page: Page
) -> None:
    await page.goto(f"{demo.console}/")
    await page.locator("[data-tile=devices]").click()
    await expect(page).to_have_url(f"{demo.console}/devices")
    await page.goto(f"{demo.console}/")
    await page.locator("[data-tile=scoreboard]").focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{demo.console}/scoreboard")


async def test_the_navigation_links_to_every_page(demo: RunningDemo, page: Page) -> None:
    await page.goto(f"{demo.console}/")
    for name, path in (
        ("Cricket", "cricket"),
        ("Collect", "collect"),
        ("Devices", "devices"),
        ("Data", "data"),
    ):
        link = page.get_by_role("navigation").get_by_role("link", name=name)
        await expect(link).to_have_attribute("href", f"/console/{path}")
        await link.click()
        await expect(page).to_have_url(f"{demo.console}/{path}")
        await expect(page.get_by_role("heading", level=1)).to_have_text(name)
        await expect(link).to_have_attribute("aria-current", "page")


async def test_a_match_page_updates_and_a_phone_follows_it(demo: RunningDemo, page: Page) -> None:
    """The Lock Screen shows a payload that passed the API, the pipeline and the push service."""
    await page.goto(f"{demo.console}/cricket")
    await page.get_by_role("main").get_by_role("link").filter(has_text="live").first.click()
    await expect(page.get_by_role("heading", name="Scorecard")).to_be_visible()
    await expect(page.get_by_role("heading", name="Key events")).to_be_visible()
    await expect(page.get_by_text("Followers").first).to_be_visible()
    for chart in ("Cumulative runs", "Run rate"):
        await expect(page.get_by_role("img", name=chart)).to_be_visible()
    await page.locator("[data-follow]").click()
    await expect(page.locator("[data-follow]")).to_contain_text("Unfollow")
    shown = page.locator("[data-iphone] [data-activity]")
    await expect(shown).to_be_visible(timeout=60_000)
    await expect(shown).to_contain_text("Harbour Herons")
    await page.get_by_role("button", name="Quit the app").click()
    await expect(page.get_by_text("the app is not running")).to_be_visible()
    await expect(shown).to_be_visible()
    await page.get_by_role("button", name="Dismiss activity").click()
    await expect(page.get_by_text("No Live Activity")).to_be_visible()


async def test_a_held_match_is_marked(demo: RunningDemo, page: Page) -> None:
    headers = {"Authorization": f"Bearer {demo.secret('operator.token')}"}
    async with httpx.AsyncClient(base_url=f"{demo.url}/cricket/admin/matches") as client:
        await page.goto(f"{demo.console}/cricket")
        await (
            page.get_by_role("main").get_by_role("link").filter(has_text="not started").last.click()
        )
        await page.wait_for_url(re.compile(r"/cricket/\d+$"))
        match_id = page.url.rpartition("/")[2]
        held = await client.put(f"/{match_id}/hold", headers=headers)
        assert held.json()["heldAt"]
        await page.reload()
        await expect(page.get_by_text("T20, held by an operator")).to_be_visible()
        await page.goto(f"{demo.console}/cricket")
        await expect(page.get_by_text("not started, held")).to_be_visible()
        await client.delete(f"/{match_id}/hold", headers=headers)
        await expect(page.get_by_text("not started, held")).to_have_count(0)


async def test_an_athlete_page_shows_the_3d_model_the_ledger_and_the_audit_trail(
    demo: RunningDemo, page: Page
) -> None:
    await page.goto(f"{demo.console}/collect")
    await page.locator("tbody a[href*='/collect/athletes/']").first.click()
    await expect(page.get_by_text(re.compile(r"parts earned"))).to_be_visible(timeout=60_000)
    await expect(page.locator("[data-model] canvas")).to_be_visible()
    await expect(page.get_by_text("STRAVA_CONNECTED")).to_be_visible()
    await expect(page.get_by_role("heading", name="Ledger")).to_be_visible()


async def test_playing_ranks_the_guest_and_shows_the_history(demo: RunningDemo, page: Page) -> None:
    """The other players score meanwhile, so the number of games up to the tenth rank varies."""
    await page.goto(f"{demo.console}/scoreboard")
    await page.locator("[data-play]").click()
    await expect(page.get_by_text("500 points")).to_be_visible()

    async def is_ranked() -> bool:
        await page.locator("[data-play]").click()
        return await page.get_by_text("(you)").is_visible()

    await eventually(is_ranked)
    await expect(page.get_by_text("+500").first).to_be_visible()


async def test_devices_are_listed_and_each_sensor_has_a_chart(
    demo: RunningDemo, page: Page
) -> None:
    await page.goto(f"{demo.console}/devices")
    row = page.locator("tbody tr").first
    await expect(row).to_contain_text("bme280")
    await row.get_by_role("link").click()
    await expect(page.get_by_role("heading", name="bme280_temp_c")).to_be_visible(timeout=60_000)
    await expect(page.get_by_label("humidity_pct over time")).to_be_visible()
    await expect(page.get_by_text("soil_moisture_pct").first).to_be_visible()
    await expect(page.get_by_text(re.compile(r"^[\d.]+ °C$")).first).to_be_visible()


async def test_an_api_key_is_shown_once_and_can_be_revoked(demo: RunningDemo, page: Page) -> None:
    """Without a description there is no key, and without a confirmation it is not revoked."""
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=demo.url)
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(f"{demo.console}/devices")
    await page.get_by_role("link", name="API keys").click()
    await page.get_by_role("button", name="Create key").click()
    await expect(page.get_by_text("Describe what uses the key")).to_be_visible()
    await page.get_by_label("Description").fill("a test of the console")
    await page.get_by_role("button", name="Create key").click()
    key = (await page.locator("[data-new-key]").inner_text()).strip()
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_text("Copied.")).to_be_visible()
    assert await page.evaluate("() => navigator.clipboard.readText()") == key
    await page.get_by_role("button", name="Done").click()
    row = page.locator("[data-key]", has_text="a test of the console")
    await expect(row).to_contain_text(f"{key[:8]}…")
    await page.reload()
    assert key not in await page.content()
    assert await page.evaluate("() => document.documentElement.scrollWidth") <= 390
    await row.get_by_role("button", name="Revoke").click()
    await page.get_by_role("button", name="Keep").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(row.get_by_text("revoked")).to_have_count(0)
    await row.get_by_role("button", name="Revoke").click()
    await page.get_by_role("button", name="Revoke key").click()
    await expect(row.get_by_text("revoked")).to_be_visible()


async def test_the_data_page_shows_tables_patterns_and_items(demo: RunningDemo, page: Page) -> None:
    await page.goto(f"{demo.console}/data")
    await expect(page.get_by_text("active-matches").first).to_be_visible()
    find = page.get_by_label("Filter patterns")
    await find.fill("Scan live fixtures")
    await expect(page.get_by_text("Scan live fixtures").first).to_be_visible()
    await page.get_by_role("link", name="cricket-leagues").click()
    await expect(page.get_by_text("Lantern League").first).to_be_visible()


async def test_the_demo_has_a_board_with_seasons_and_an_alarm_rule(
    demo: RunningDemo, page: Page
) -> None:
    """Both pages would be empty otherwise, and nobody would see what they are for."""
    await page.goto(f"{demo.console}/scoreboard/boards")
    await page.get_by_label("Board", exact=True).click()
    await page.get_by_role("option", name="Ten-minute sprint").click()
    await expect(page.locator("[data-season]")).to_have_text(
        re.compile(r"Season \d+, [1-9]\d* players?, closes in 0:0")
    )
    headers = {"Authorization": f"Bearer {demo.secret('operator.token')}"}
    rules = demo.get_json("/devices/alarm-rules", **headers)["items"]
    assert "Low pressure" in [rule["name"] for rule in rules]


async def test_an_empty_table_has_one_message_that_says_why(demo: RunningDemo, page: Page) -> None:
    for path, message in (
        ("operations/backups", "No backup has been created here."),
        ("operations/webhooks", "No webhook is registered."),
        ("operations/logs?text=nothing-has-this-text", "No recent line matches."),
    ):
        await page.goto(f"{demo.console}/{path}")
        await expect(page.get_by_text(message)).to_be_visible()
        await expect(page.get_by_text("No data available")).to_have_count(0)
