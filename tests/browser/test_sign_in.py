"""The console of a production server: sign-in, roles, the end of sessions, and other origins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tally.kit.operators import Role
from tally.kit.server import serving
from tests.browser.conftest import RunningDemo, eventually, watch_errors
from tests.console.console_server import COOKIE, ConsoleServer, console_server

# An open page leaves within this time when its session ends: checks every two seconds, and another
# instance's cache of five seconds.
LEAVE_MS = 20_000

# Sends a click on everything but the header to the server, as a forged page would.
FORGE_CLICKS = """
() => {
  const elements = mounted_app.elements;
  let sent = 0;
  for (const [id, element] of Object.entries(elements)) {
    if (element.class.some(name => ['tally-menu', 'tally-sign-out'].includes(name))) continue;
    for (const event of element.events || []) {
      if (event.type !== 'click') continue;
      window.socket.emit('event', {id: Number(id), client_id: window.clientId,
        listener_id: event.listener_id, args: ['null']});
      sent += 1;
    }
  }
  return sent;
}
"""


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleServer]:
    folder = tmp_path_factory.mktemp("production")
    async with console_server(folder, "devices", "scoreboard", "cricket") as running:
        yield running


@asynccontextmanager
async def new_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(90_000)
    yield context
    await context.close()


async def open_signed_in(
    server: ConsoleServer, context: BrowserContext, name: str, role: Role = Role.OPERATOR
) -> Page:
    """Sign in with a new operator's token, as a person does."""
    page = await context.new_page()
    await page.goto(f"{server.console}/devices/keys")
    await page.get_by_label("Operator token").fill(await server.add_operator(name, role))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("API keys")
    await expect(page.locator("[data-operator]")).to_have_text(f"{name} ({role.value})")
    return page


async def expect_sign_in_page(page: Page, server: ConsoleServer) -> None:
    await expect(page.get_by_label("Operator token")).to_be_visible(timeout=LEAVE_MS)
    assert page.url.startswith(f"{server.console}/login")


async def test_a_wrong_token_is_refused_and_the_right_one_returns_to_the_page(
    server: ConsoleServer, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await context.new_page()
        errors = watch_errors(page)
        await page.goto(f"{server.console}/data")
        await expect(page).to_have_url(f"{server.console}/login?next=/data")
        await page.get_by_label("Operator token").fill("not it")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("Invalid operator token.")
        await page.get_by_label("Operator token").fill(await server.add_operator("right"))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Data")
        await page.goto(f"{server.console}/")
        await expect(page.locator("[data-tile=collect]")).to_contain_text(
            "Not running on this instance"
        )
        [cookie] = await context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Lax")
        assert errors == []


async def test_sign_out_closes_every_tab_of_the_session_and_no_other(
    server: ConsoleServer, browser: Browser
) -> None:
    async with new_context(browser) as mine, new_context(browser) as other:
        page = await open_signed_in(server, mine, "leaver")
        tab = await mine.new_page()
        await tab.goto(f"{server.console}/")
        stays = await open_signed_in(server, other, "stayer")
        [cookie] = await mine.cookies()
        await page.get_by_role("button", name="Sign out").click()
        await expect_sign_in_page(page, server)
        await expect_sign_in_page(tab, server)
        await mine.add_cookies([{"name": COOKIE, "value": cookie["value"], "url": server.url}])
        await page.goto(f"{server.console}/data")
        await expect_sign_in_page(page, server)
        await stays.get_by_role("navigation").get_by_role("link", name="Data").click()
        await expect(stays.get_by_role("heading", level=1)).to_have_text("Data")
    records, _ = await server.operators.changes("leaver", 10)
    assert [record.action for record in records] == ["console_sign_out", "console_sign_in"]


@pytest.mark.judge
async def test_an_open_page_of_a_removed_operator_returns_to_the_sign_in_page(
    server: ConsoleServer, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "removed")
        await server.operators.remove("removed")
        await expect_sign_in_page(page, server)


@pytest.mark.judge
async def test_a_page_that_ignores_the_end_of_its_session_is_disconnected(
    server: ConsoleServer, browser: Browser
) -> None:
    """Its socket closes and does not open again, and nothing that it sends changes anything."""
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "stubborn")
        await page.get_by_label("Description").fill("by a removed operator")
        await page.evaluate("() => { window.open = () => null; }")
        await server.operators.remove("stubborn")
        await page.wait_for_function("() => !window.socket.connected", timeout=LEAVE_MS)
        await page.evaluate("() => window.socket.connect()")
        await page.evaluate(FORGE_CLICKS)
        await page.wait_for_timeout(1_000)  # the socket tries to connect again
        assert await page.evaluate("() => window.socket.connected") is False
        await expect_no_key(server, context, "by a removed operator")


async def expect_no_key(server: ConsoleServer, context: BrowserContext, text: str) -> None:
    await context.clear_cookies()
    page = await open_signed_in(server, context, f"check-{abs(hash(text)) % 10**8}")
    await expect(page.get_by_role("button", name="Create key")).to_be_enabled()
    await expect(page.get_by_text(text)).to_have_count(0)


@pytest.mark.judge
async def test_idle_and_old_sessions_end_on_open_pages(browser: Browser, tmp_path: Path) -> None:
    """A click restarts the idle time-out, but not the lifetime."""
    limits = {"TALLY_CONSOLE_IDLE_TIMEOUT": "6", "TALLY_CONSOLE_SESSION_LIFETIME": "14"}
    async with (
        console_server(tmp_path, "devices", **limits) as short,
        new_context(browser) as context,
    ):
        page = await open_signed_in(short, context, "idle")
        started = asyncio.get_running_loop().time()
        await expect_sign_in_page(page, short)
        assert asyncio.get_running_loop().time() - started < 6 + LEAVE_MS / 1000
        page = await open_signed_in(short, context, "busy")
        clicks = 0
        await page.get_by_label("Description").focus()

        async def is_signed_out() -> bool:
            nonlocal clicks
            if not page.url.endswith("/devices/keys"):
                return True
            clicks += 1
            await page.keyboard.press("a")  # does not wait for the field, which may be gone by now
            return False

        await eventually(is_signed_out, 14 + LEAVE_MS / 1000)
        assert clicks > 15, "it was in use until its lifetime ended"
        await expect_sign_in_page(page, short)


async def test_viewers_read_everything_and_change_nothing(
    server: ConsoleServer, browser: Browser
) -> None:
    """Controls are disabled, and the server refuses what a forged page sends."""
    async with new_context(browser) as context:
        admin = await open_signed_in(server, context, "owner")
        await admin.get_by_label("Description").fill("of the owner")
        await admin.get_by_role("button", name="Create key").click()
        await admin.get_by_role("button", name="Done").click()
        await expect(admin.get_by_text("of the owner")).to_be_visible()
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "reader", Role.VIEWER)
        await expect(page.get_by_text("of the owner")).to_be_visible()
        for name in ("Create key", "Revoke"):
            await expect(page.get_by_role("button", name=name).first).to_be_disabled()
        await page.get_by_label("Description").fill("of a reader")
        assert await page.evaluate(FORGE_CLICKS) >= 2
        # The server receives this after the forged clicks.
        await page.get_by_role("button", name="Sign out").click()
        await expect_sign_in_page(page, server)
        page = await open_signed_in(server, context, "second-reader", Role.VIEWER)
        await expect(page.get_by_role("button", name="Revoke")).to_have_count(1)
        await expect(page.get_by_text("of a reader")).to_have_count(0)
    actions = {record.action for record in (await server.operators.changes("reader", 10))[0]}
    assert "api_key_create" not in actions
    assert "api_key_revoke" not in actions
    owner = [record.action for record in (await server.operators.changes("owner", 10))[0]]
    assert "api_key_create" in owner


async def test_controls_of_the_demo_do_not_exist_in_production(
    server: ConsoleServer, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "production")
        await page.goto(f"{server.console}/scoreboard")
        await expect(page.get_by_text("Redis available")).to_be_visible()
        await expect(page.get_by_role("button", name="Play a game")).to_have_count(0)
        await expect(page.get_by_role("switch")).to_have_count(0)
        await page.goto(f"{server.console}/")
        await expect(page.get_by_text("Demo:")).to_have_count(0)


# What a page on another origin tries: the WebSocket, polling, a form, and a frame.
ATTACK = """
async (url) => {
  const socket = url.replace('http', 'ws') + '/_nicegui_ws/socket.io/?EIO=4&transport=websocket';
  const results = {};
  results.socket = await new Promise(resolve => {
    const attempt = new WebSocket(socket);
    attempt.onopen = () => resolve('open');
    attempt.onerror = () => resolve('refused');
  });
  const polling = url + '/_nicegui_ws/socket.io/?EIO=4&transport=polling';
  const read = (path, mode) => fetch(path, {credentials: 'include', mode})
    .then(async response => response.type + ' ' + (await response.text()).slice(0, 20))
    .catch(() => 'refused');
  results.polling = await read(polling, 'cors');
  results.page = await read(url + '/', 'cors');
  results.opaque = await read(url + '/', 'no-cors');
  results.frame = await new Promise(resolve => {
    const frame = document.createElement('iframe');
    frame.onload = () => {
      try { resolve(frame.contentDocument ? 'own' : 'cross'); } catch { resolve('cross'); }
    };
    frame.src = url + '/';
    document.body.append(frame);
  });
  return results;
}
"""


async def test_a_page_on_another_origin_reaches_nothing(
    demo: RunningDemo, browser: Browser
) -> None:
    """It is on the same host, so that the browser sends the cookie of the signed-in operator."""

    async def attacker(_: Any) -> HTMLResponse:
        return HTMLResponse("<h1>Another page</h1>")

    evil = Starlette(routes=[Route("/", attacker)])
    async with new_context(browser) as context, serving(evil) as origin:
        await demo.sign_in(context)
        page = await context.new_page()
        refused: list[int] = []
        page.on("response", lambda response: refused.append(response.status))
        await page.goto(f"{origin}/")
        refused.clear()
        results = await page.evaluate(ATTACK, demo.console)
        assert results["socket"] == "refused"
        assert results["polling"] == "refused"
        assert results["page"] == "refused"
        assert results["opaque"] == "refused", "not even an opaque response"
        assert set(refused) == {403}, "no request reached a page"
        await expect(page.frame_locator("iframe").get_by_text("Home")).to_have_count(0)
        await page.goto(f"{demo.console}/")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Home")


async def test_the_link_of_the_demo_works_once_and_the_session_is_the_first_operators(
    demo: RunningDemo, page: Page
) -> None:
    await page.goto(f"{demo.console}/")
    await expect(page.locator("[data-operator]")).to_have_text("admin (operator)")
    token = demo.secret("operator.token")
    await page.context.clear_cookies()
    await page.goto(demo.link)
    await expect(page.get_by_label("Operator token")).to_be_visible()
    await page.get_by_label("Operator token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("[data-operator]")).to_have_text("admin (operator)")
