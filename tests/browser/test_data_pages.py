"""The data pages of a production server: tables, items, exports, edits and what viewers may do."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from tally.app import CATALOGUE
from tally.kit.operators import Role
from tally.store import api
from tally.store.schema import Table
from tally.store.sqlite import open_sqlite
from tests.browser.test_sign_in import (
    FORGE_CLICKS,
    expect_sign_in_page,
    new_context,
    open_signed_in,
)
from tests.console.console_server import ConsoleServer, console_server

ITEMS = 60


def find_table(name: str) -> Table:
    return next(table for table in CATALOGUE.tables() if table.name == name)


SENSORS = find_table("device_sensors")


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleServer]:
    async with console_server(tmp_path_factory.mktemp("tables"), "devices") as running:
        yield running


@pytest.fixture(scope="module")
async def engine(server: ConsoleServer) -> AsyncIterator[api.Engine]:
    """Open the server's store as another instance does."""
    async with open_sqlite(server.data_dir) as opened:
        for number in range(ITEMS):
            await opened.put(api.Put(SENSORS, sensor(f"sensor-{number:02}")))
        yield opened


def sensor(name: str, **attributes: object) -> dict[str, object]:
    return {"fleet": "all", "sensor": name, "unit": "°C", "updateToken": "sealed"} | attributes


async def stored(engine: api.Engine, name: str) -> dict[str, object] | None:
    key = {"fleet": "all", "sensor": name}
    return (await engine.get(api.Get(SENSORS, key, consistent=True))).item


async def open_item(page: Page, server: ConsoleServer, name: str) -> None:
    await page.goto(f"{server.console}/data/device_sensors/item?partition=all&sort={name}")
    await expect(page.locator("[data-attribute=sensor]")).to_contain_text(name)


async def test_a_table_is_read_page_by_page_and_by_key_and_follows_changes(
    server: ConsoleServer, engine: api.Engine, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "table-reader", Role.VIEWER)
        await page.goto(f"{server.console}/data")
        row = page.get_by_role("row", name="device_sensors")
        await expect(row).to_contain_text(str(ITEMS))
        await row.get_by_role("link").click()
        await expect(page.get_by_text("Page 1, 25 items")).to_be_visible()
        await page.get_by_role("button", name="Next").click()
        await page.get_by_role("button", name="Next").click()
        await expect(page.get_by_text(f"Page 3, {ITEMS - 50} items")).to_be_visible()
        await page.goto(
            f"{server.console}/data/device_sensors?partition=all&condition=%3E&value=sensor-57"
        )
        await expect(page.get_by_text("Page 1, 2 items")).to_be_visible()
        await engine.put(api.Put(SENSORS, sensor("sensor-99")))
        await expect(page.get_by_text("sensor-99")).to_be_visible()
        await engine.delete(api.Delete(SENSORS, {"fleet": "all", "sensor": "sensor-99"}))
        await expect(page.get_by_text("sensor-99")).to_have_count(0)
        assert "sealed" not in await page.content()
        await page.get_by_role("link", name="sensor-58").click()
        await expect(page.locator("[data-attribute=unit]")).to_contain_text("°C")
        assert "sealed" not in await page.content()


async def test_an_export_has_the_items_of_the_query_without_secrets(
    server: ConsoleServer, engine: api.Engine, browser: Browser
) -> None:
    await engine.put(api.Put(SENSORS, sensor("=cmd()", unit="-1")))
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "exporter", Role.VIEWER)
        await page.goto(
            f"{server.console}/data/device_sensors?partition=all&condition=%3C&value=sensor-02"
        )
        texts = []
        for kind in ("csv", "jsonl"):
            async with page.expect_download() as started:
                await page.locator(f"[data-export={kind}]").click()
            download = await started.value
            assert download.suggested_filename == f"device_sensors.{kind}"
            path = await download.path()
            texts.append(await asyncio.to_thread(path.read_text, encoding="utf-8"))
        for text in texts:
            assert "sensor-01" in text
            assert "sensor-02" not in text
            assert "sealed" not in text
        assert "'=cmd()" in texts[0], "a spreadsheet does not evaluate it"
        assert '"unit":{"S":"-1"}' in texts[1]
        hidden = await page.request.get(f"{server.console}/data/tally-operators/export")
        assert hidden.status == 404
    await engine.delete(api.Delete(SENSORS, {"fleet": "all", "sensor": "=cmd()"}))


async def test_an_operator_sees_the_difference_before_an_edit_which_is_audited(
    server: ConsoleServer, engine: api.Engine, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "editor")
        await open_item(page, server, "sensor-10")
        editor = page.get_by_label("Attributes as DynamoDB JSON")
        text = await editor.input_value()
        assert "sealed" not in text
        await editor.fill(text.replace('{\n    "S": "°C"\n  }', '"K"'))
        await page.get_by_role("button", name="Review changes").click()
        await expect(page.get_by_role("alert")).to_contain_text("unit: ")
        await editor.fill(text.replace("°C", "K"))
        await page.get_by_role("button", name="Review changes").click()
        change = page.locator("[data-change]")
        await expect(change).to_have_count(1)
        await expect(change).to_contain_text('- {"S":"°C"}')
        await expect(change).to_contain_text('+ {"S":"K"}')
        assert await stored(engine, "sensor-10") == sensor("sensor-10")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator("[data-attribute=unit]")).to_contain_text("K")
        assert await stored(engine, "sensor-10") == sensor("sensor-10", unit="K")
        await page.get_by_role("button", name="Delete item").click()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_text("This item has been deleted")).to_be_visible()
        assert await stored(engine, "sensor-10") is None
    records = (await server.operators.changes("editor", 10))[0]
    changes = [(it.action, it.target, it.outcome) for it in records if it.action[:4] == "item"]
    target = "data/device_sensors: fleet = all, sensor = sensor-10"
    assert changes == [
        ("item_delete", target, "succeeded"),
        ("item_update", target, "succeeded"),
    ]


async def test_an_edit_does_not_overwrite_a_change_made_meanwhile(
    server: ConsoleServer, engine: api.Engine, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "late-editor")
        await open_item(page, server, "sensor-11")
        changed = sensor("sensor-11", label="by somebody else")
        await engine.put(api.Put(SENSORS, changed | {"unit": "F"}))
        await expect(page.locator("[data-attribute=unit]")).to_contain_text("F")
        editor = page.get_by_label("Attributes as DynamoDB JSON")
        await editor.fill((await editor.input_value()).replace("°C", "K"))
        await page.get_by_role("button", name="Review changes").click()
        await page.get_by_role("button", name="Save").click()
        alert = page.get_by_role("alert").filter(has_text="changed or deleted since you opened it")
        await expect(alert.first).to_be_visible()
        assert await stored(engine, "sensor-11") == changed | {"unit": "F"}


async def test_a_viewer_cannot_change_an_item_even_with_forged_clicks(
    server: ConsoleServer, engine: api.Engine, browser: Browser
) -> None:
    async with new_context(browser) as context:
        page = await open_signed_in(server, context, "item-viewer", Role.VIEWER)
        await open_item(page, server, "sensor-12")
        for name in ("Review changes", "Delete item"):
            await expect(page.get_by_role("button", name=name)).to_be_disabled()
        assert await page.evaluate(FORGE_CLICKS) >= 3
        # The server receives this after the forged clicks.
        await page.get_by_role("button", name="Sign out").click()
        await expect_sign_in_page(page, server)
    assert await stored(engine, "sensor-12") == sensor("sensor-12")
    actions = {record.action for record in (await server.operators.changes("item-viewer", 10))[0]}
    assert actions == {"console_sign_in", "console_sign_out"}
