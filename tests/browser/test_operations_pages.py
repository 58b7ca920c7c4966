"""The operations pages of a production server, and what viewers cannot do on them."""

import stat
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from tally.console.navigation import NAVIGATION
from tally.kit.operators import Role
from tests.browser.test_sign_in import (
    FORGE_CLICKS,
    expect_sign_in_page,
    new_context,
    open_signed_in,
)
from tests.console.console_server import ConsoleServer, console_server

JOB = "/operations/jobs/ttl-sweep"
VIEWED = [JOB, *(entry.path for group in NAVIGATION[2:] for entry in group.entries)]


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleServer]:
    folder = tmp_path_factory.mktemp("operations")
    async with console_server(folder, "devices", TALLY_ACCESS_LOG="true") as running:
        yield running


async def actions_of(server: ConsoleServer, name: str) -> list[str]:
    """Return what an operator changed, oldest first, without signing in and out."""
    records = (await server.operators.changes(name, 50))[0]
    found = [f"{record.action} {record.outcome}" for record in reversed(records)]
    return [action for action in found if not action.startswith("console_")]


async def press(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def test_a_job_is_run_paused_and_resumed(server: ConsoleServer, browser: Browser) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "scheduler")
        await page.goto(f"{server.console}/operations/jobs")
        await page.get_by_role("link", name="ttl-sweep").click()
        state = page.locator("[data-state]")
        await press(page, "Pause")
        await expect(state).to_contain_text("Paused by scheduler")
        await press(page, "Run now")
        await expect(page.get_by_role("row", name="succeeded").first).to_be_visible()
        await page.goto(f"{server.console}/operations/jobs")
        await expect(page.get_by_role("row", name="ttl-sweep")).to_contain_text("paused")
        await page.goto(server.console + JOB)
        await press(page, "Resume")
        await expect(state).not_to_contain_text("Paused")
        await expect(page.get_by_text("Next run:")).to_be_visible()
    assert await actions_of(server, "scheduler") == [
        "job_pause succeeded",
        "job_run succeeded",
        "job_resume succeeded",
    ]


async def test_a_back_up_is_private_and_only_operators_download_it(
    server: ConsoleServer, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "keeper")
        await page.goto(f"{server.console}/operations/backups")
        await press(page, "Create backup")
        link = page.locator("a[href^='backups/']").first
        async with page.expect_download() as started:
            await link.click()
        name = (await started.value).suggested_filename
    [path] = server.data_dir.with_name("data-backups").iterdir()
    assert (path.name, stat.S_IMODE(path.stat().st_mode)) == (name, 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert await actions_of(server, "keeper") == [
        "backup_create succeeded",
        "backup_download succeeded",
    ]
    file = f"{server.console}/operations/backups/{name}"
    async with new_context(browser) as context:
        assert "Operator token" in await (await context.request.get(file)).text()
        page = await open_signed_in(server, context, "curious", Role.VIEWER)
        assert (await page.request.get(file)).status == 403
        await page.goto(f"{server.console}/operations/backups")
        await expect(page.get_by_text(name)).to_be_visible()
        await expect(page.locator("a[href^='backups/']")).to_have_count(0)
    assert await actions_of(server, "curious") == []


async def test_an_operators_token_is_shown_once_and_ends_with_the_operator(
    server: ConsoleServer, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "manager")
        await page.goto(f"{server.console}/operations/operators")
        await page.get_by_label("Name", exact=True).fill("grace")
        await press(page, "Add operator")
        token = await page.locator("[data-secret]").inner_text()
        assert (await server.operators.authenticate(token)).role is Role.VIEWER
        await expect(page.get_by_role("button", name="Copy")).to_be_visible()
        await press(page, "Done")
        await page.reload()
        await expect(page.locator("[data-account=grace]")).to_be_visible()
        assert token not in await page.content()
        await press(page, "Remove grace")
        await press(page, "Cancel")
        assert await server.operators.get("grace") is not None
        await press(page, "Remove grace")
        await press(page, "Remove")
        await expect(page.locator("[data-account=grace]")).to_have_count(0)
        await expect(page.get_by_role("row", name="operator_remove")).to_contain_text("succeeded")


async def test_a_webhook_is_created_disabled_and_deleted_without_showing_its_secrets(
    server: ConsoleServer, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "integrator")
        await page.goto(f"{server.console}/operations/webhooks")
        await page.get_by_label("URL").fill("https://receiver.example/hooks/private-path")
        await page.get_by_role("combobox", name="Events").click()
        await page.get_by_role("option").first.click()
        await page.keyboard.press("Escape")
        await press(page, "Create webhook")
        secret = await page.locator("[data-secret]").inner_text()
        await press(page, "Done")
        row = page.get_by_role("row", name="https://receiver.example")
        await row.get_by_role("link").click()
        await press(page, "Disable")
        await expect(page.get_by_text("Disabled: Disabled by an operator")).to_be_visible()
        content = await page.content()
        assert "private-path" not in content
        assert secret not in content
        await press(page, "Delete webhook")
        await press(page, "Delete")
        await expect(page.get_by_text("No webhook is registered.")).to_be_visible()


async def test_the_log_of_a_request_is_found_by_its_id(
    server: ConsoleServer, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "searcher", Role.VIEWER)
        response = await page.request.get(f"{server.url}/devices/devices")
        request_id = response.headers["x-request-id"]
        await page.goto(f"{server.console}/operations/logs?request={request_id}")
        await expect(page.get_by_role("status")).to_have_text("1 line")
        await expect(page.get_by_role("link", name=request_id)).to_be_visible()
        await page.get_by_label("Text").fill("no line has this text")
        await expect(page.get_by_text("No line matches.")).to_be_visible()


async def test_a_viewer_reads_every_page_and_changes_nothing(
    server: ConsoleServer, browser: Browser
) -> None:
    """Also not with a page that sends clicks on disabled controls."""
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "onlooker", Role.VIEWER)
        for path in VIEWED:
            await page.goto(server.console + path)
            await page.wait_for_selector("[role=heading][aria-level='2']")
            await page.evaluate(FORGE_CLICKS)
        # The server receives this after the forged clicks.
        await press(page, "Sign out")
        await expect_sign_in_page(page, server)
    assert await actions_of(server, "onlooker") == []
