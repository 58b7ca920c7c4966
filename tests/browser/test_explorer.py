"""The explorer at /docs: search, try-it and authorization, without a request to another server."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import ARTEFACTS, RunningDemo, watch_errors

SCHEMES = {
    "collect_session",
    "cricket_user",
    "device_key",
    "game_server",
    "operator",
    "player",
}


@pytest.fixture
async def explorer(browser: Browser, demo: RunningDemo) -> AsyncIterator[Page]:
    """Open the explorer without a session; only requests to its own server are allowed."""
    page = await browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(90_000)
    errors, requests = watch_errors(page), set[str]()
    page.on("request", lambda request: requests.add(request.url))
    await open_explorer(page, demo)
    yield page
    ARTEFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTEFACTS / "explorer.png")
    await page.close()
    assert errors == []
    assert {url for url in requests if not url.startswith((f"{demo.url}/", "data:"))} == set()


async def open_explorer(page: Page, demo: RunningDemo) -> None:
    await page.goto("about:blank")  # otherwise a new fragment does not load the page again
    await page.goto(f"{demo.url}/docs")
    await page.wait_for_selector(".opblock")


async def search(page: Page, text: str, found: int) -> None:
    await page.get_by_placeholder("Search operations").fill(text)
    await expect(page.locator(".opblock")).to_have_count(found)


async def execute(page: Page) -> str:
    """Send the request of the only operation in the list; return the status of its response."""
    await page.locator(".opblock-summary-control").click()
    await page.locator("button.execute").click()
    status = page.locator(".live-responses-table tbody .response-col_status")
    return (await status.first.inner_text()).split()[0]


async def test_the_search_finds_operations_by_all_words(explorer: Page) -> None:
    """In paths, summaries and operation IDs, whatever their case."""
    await search(explorer, "rebuild LEADERBOARD", found=1)
    await expect(explorer.locator(".opblock-summary-path")).to_contain_text("leaderboard")
    await search(explorer, "cricket_get_match_state", found=1)
    await search(explorer, "no such words", found=0)


async def test_a_request_without_credentials_works(explorer: Page) -> None:
    await search(explorer, "tally check_health", found=1)
    assert await execute(explorer) == "200"


@pytest.mark.judge
async def test_the_token_of_an_operator_is_used_but_not_stored(
    explorer: Page, demo: RunningDemo
) -> None:
    await explorer.locator("button.authorize").first.click()
    dialog = explorer.locator(".auth-wrapper .modal-ux, .dialog-ux .modal-ux")
    titles = await dialog.locator("h4 code").all_inner_texts()
    assert {title.strip() for title in titles} == SCHEMES
    form = dialog.locator(".auth-container", has=explorer.locator("h4 code", has_text="operator"))
    await form.locator("input").fill(demo.secret("operator.token"))
    await form.get_by_role("button", name="Apply credentials").click()
    await dialog.locator("button.close-modal").click()
    await search(explorer, "devices_list_devices", found=1)
    assert await execute(explorer) == "200"
    stored = await explorer.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert stored == "[{},{}]"
    await open_explorer(explorer, demo)
    await search(explorer, "devices_list_devices", found=1)
    assert await execute(explorer) == "401"


async def test_the_type_of_an_error_is_a_link_to_its_meaning(
    explorer: Page, demo: RunningDemo
) -> None:
    response = await explorer.request.get(f"{demo.url}/devices/devices")
    problem = await response.json()
    await explorer.goto(demo.url + problem["type"])
    entry = explorer.locator("section:target")
    await expect(entry).to_contain_text(problem["code"])
    await expect(entry).to_contain_text(f"{problem['status']} {problem['title']}")
