"""The frame of every page: links, search, keyboard, operator, and unknown addresses."""

import re

from playwright.async_api import Page, expect

from tests.browser.conftest import RunningDemo


async def test_pages_open_in_a_new_tab(demo: RunningDemo, page: Page) -> None:
    """Navigation, tiles and rows are links, so a middle click opens another tab."""
    await page.goto(f"{demo.console}/")
    for link, path in (
        (page.get_by_role("navigation").get_by_role("link", name="Collect"), "/collect"),
        (page.locator("a[data-tile=devices]"), "/devices"),
    ):
        async with page.context.expect_page() as opened:
            await link.click(button="middle")
        tab = await opened.value
        await expect(tab).to_have_url(f"{demo.console}{path}")
        await tab.close()
    await expect(page).to_have_url(f"{demo.console}/")


async def test_an_unknown_address_has_status_404_and_a_way_back(
    demo: RunningDemo, page: Page
) -> None:
    for path in ("/nowhere", "/cricket/0", "/devices/00:00", "/scoreboard/players/nobody"):
        response = await page.goto(f"{demo.console}{path}")
        assert response is not None
        assert response.status == 404, path
        await page.get_by_role("main").get_by_role("link", name="Home").click()
        await expect(page).to_have_url(f"{demo.console}/")


async def test_the_slash_key_searches_all_backends(demo: RunningDemo, page: Page) -> None:
    """A slash in a field is a slash."""
    await page.goto(f"{demo.console}/data")
    search = page.get_by_role("searchbox", name="Search")
    await page.keyboard.press("/")
    await expect(search).to_be_focused()
    await page.keyboard.type("cricket-leagues/")
    await expect(search).to_have_value("cricket-leagues/")
    await page.keyboard.press("Backspace")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{demo.console}/search?q=cricket-leagues")
    result = page.locator("a[data-result]", has_text="cricket-leagues")
    await expect(result).to_have_attribute("href", "/console/data/cricket-leagues")
    await page.goto(f"{demo.console}/search?q=no-such-thing")
    await expect(page.get_by_text('Nothing matches "no-such-thing"')).to_be_visible()


async def test_the_keyboard_skips_the_navigation(demo: RunningDemo, page: Page) -> None:
    """The first link moves the focus to the content, and the focused element has an outline."""
    await page.goto(f"{demo.console}/")
    await page.locator("a[data-tile=cricket]").wait_for()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.locator("a[data-tile=cricket]")).to_be_focused()
    await expect(page.locator("a[data-tile=cricket]")).to_have_css("outline-style", "solid")


async def test_the_navigation_names_the_operator_and_opens_on_a_phone(
    demo: RunningDemo, page: Page
) -> None:
    await page.goto(f"{demo.console}/")
    await expect(page.locator("[data-operator]")).to_have_text("admin (operator)")
    await page.set_viewport_size({"width": 390, "height": 844})
    await expect(page.get_by_role("navigation")).not_to_be_in_viewport()
    await page.get_by_role("button", name="Navigation").click()
    await expect(page.get_by_role("button", name="Sign out")).to_be_in_viewport()
    await page.get_by_role("navigation").get_by_role("link", name="Devices").click()
    await expect(page).to_have_url(re.compile(r"/devices$"))
