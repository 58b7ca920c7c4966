"""The devices pages: device list, API keys, and one device with a chart per sensor."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from nicegui import ui

from tally.console.charts import DAYS, HOURS, line, line_chart
from tally.console.context import ConsoleContext
from tally.console.formatting import format_ago
from tally.console.live_updates import refresh_on_change
from tally.console.shell import Region, Shell, card, empty_state, heading, not_found, not_started
from tally.devices.model.records import ApiKey, Device, Reading
from tally.devices.wiring import Devices
from tally.errors import NotFound, TallyError

MAX_DEVICES: Final = 200
MAX_KEYS: Final = 50
CHART_POINTS: Final = 240
# Selectable time ranges of the charts, in milliseconds.
TIME_RANGES: Final = {
    "10 minutes": 600_000,
    "1 hour": 3_600_000,
    "1 day": 86_400_000,
    "7 days": 604_800_000,
}
DAY_MS: Final = 86_400_000
DEVICE_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "id", "label": "Device", "field": "id", "align": "left"},
    {"name": "name", "label": "Name", "field": "name", "align": "left"},
    {"name": "seen", "label": "Last seen", "field": "seen", "align": "left"},
    {"name": "firmware", "label": "Firmware", "field": "firmware", "align": "left"},
    {"name": "sensors", "label": "Sensors", "field": "sensors", "align": "left"},
]


def add_devices_pages(shell: Shell, context: ConsoleContext) -> None:
    devices = context.backend("devices", Devices)

    @shell.page(
        "/devices",
        "Devices",
        "Devices send sensor readings. Each reading is stored exactly once, even if it is resent.",
    )
    async def device_list() -> None:
        if devices is None:
            not_started("devices")
            return
        await _device_list(context, devices)
        await _keys(context, devices)

    @shell.page("/devices/{hardware_id}", "Device", is_headed=False)
    async def device(hardware_id: str) -> None:
        if devices is None:
            heading("Device")
            not_started("devices")
            return
        try:
            selected = await devices.services.devices.get(hardware_id)
        except TallyError as error:
            not_found("Device", error.message, "/devices", "All devices")
            return
        await _device(context, devices, selected)


async def _device_list(context: ConsoleContext, devices: Devices) -> None:
    about = "Sorted by last activity (updated every 5 minutes). Select a device to see its charts."
    with card("All devices", about=about):
        table = ui.table(columns=DEVICE_COLUMNS, rows=[], row_key="id", pagination=15).classes(
            "w-full cursor-pointer"
        )
        table.props("dense flat")
        table.on("rowClick", lambda event: ui.navigate.to(f"/devices/{event.args[1]['id']}"))
        with ui.column() as empty:
            empty_state('No devices yet. Start some with "tally sim boards".')

    async def refresh() -> None:
        page, _ = await devices.services.devices.by_activity(MAX_DEVICES, None)
        now = context.clock.now()
        table.rows = [_device_row(device, now) for device in page]
        table.update()
        empty.set_visibility(not page)

    await refresh()
    ui.timer(3.0, refresh, immediate=False)


def _device_row(device: Device, now: datetime) -> dict[str, str]:
    return {
        "id": device.hardware_id,
        "name": device.friendly_name or "",
        "seen": format_ago((now - datetime.fromisoformat(device.last_seen_at)).total_seconds()),
        "firmware": device.firmware_version,
        "sensors": ", ".join(device.capabilities.sensors),
    }


async def _keys(context: ConsoleContext, devices: Devices) -> None:
    with card(
        "API keys",
        about="Devices authenticate with an API key. A key is shown only once, when it is created.",
    ):
        with ui.row().classes("items-center"):
            description = ui.input("Description of the new key").classes("w-64")
            create_button = ui.button("Create key", icon="key")
        key_list = ui.column().classes("w-full gap-1")

    async def refresh() -> None:
        page, _ = await devices.services.keys.newest_first(MAX_KEYS, None)
        key_list.clear()
        with key_list:
            for key in page:
                _key_row(context, devices, key, refresh)

    async def create() -> None:
        async with context.changes.audited("api_key_create", "devices/api-keys"):
            _, raw = await devices.services.keys.create(description.value or None)
        with ui.dialog() as dialog, ui.card():
            ui.label("Copy the key now. It is not shown again.").props("role=heading aria-level=2")
            ui.label(raw).classes("text-weight-bold").style("font-family: monospace").props(
                "data-new-key=1"
            )
            ui.button("Done", on_click=dialog.close)
        dialog.value = True
        description.set_value("")
        await refresh()

    context.changes.control(create_button, create)
    await refresh()


def _key_row(
    context: ConsoleContext, devices: Devices, key: ApiKey, refresh: Callable[[], Any]
) -> None:
    async def revoke() -> None:
        async with context.changes.audited("api_key_revoke", f"devices/api-keys/{key.key_id}"):
            await devices.services.keys.revoke(key.key_id)
        await refresh()

    with ui.row().classes("items-center gap-3"):
        ui.icon("key" if key.is_active else "key_off").props("aria-hidden=true")
        ui.label(key.description or "No description")
        ui.label(f"Created {_day(key.created_at)}, last used {_day(key.last_used_at)}").classes(
            "tally-quiet tally-small"
        )
        if key.is_active:
            button = ui.button("Revoke").props("flat dense color=negative no-caps")
            context.changes.control(button, revoke)
        else:
            ui.label("revoked").classes("text-negative")


async def _device(context: ConsoleContext, devices: Devices, device: Device) -> None:
    about = f"Firmware {device.firmware_version}, first seen {_day(device.first_registered_at)}"
    heading(
        device.friendly_name or device.hardware_id,
        about if device.friendly_name is None else f"{device.hardware_id}. {about}",
    )
    with card("Live readings"):
        latest = Region(ui.row().classes("gap-8"))
    with ui.row().classes("items-end gap-4 w-full"):
        time_span = ui.select(list(TIME_RANGES), value="10 minutes", label="Time range").classes(
            "w-48"
        )
        _rename_form(context, devices, device)
    charts = ui.element("div").classes("tally-halves")
    sensor_charts: dict[str, ui.echart] = {}

    async def refresh() -> None:
        try:
            reading = await devices.services.history.latest(device.hardware_id)
        except NotFound:
            return
        latest.show(reading.sensors, lambda: _sensor_values(reading))
        now = context.clock.milliseconds()
        since = max(0, now - TIME_RANGES[str(time_span.value)])
        for sensor in sorted(reading.sensors):
            series = await devices.services.charts.series(
                device.hardware_id, sensor, (since, now), CHART_POINTS, owner="console"
            )
            if sensor not in sensor_charts:
                with charts, card(sensor):
                    sensor_charts[sensor] = (
                        ui.echart(_chart())
                        .classes("w-full h-56")
                        .props(f"aria-label='{sensor} over time'")
                    )
            points = [[bucket.from_ms, round(float(bucket.mean), 3)] for bucket in series.buckets]
            sensor_charts[sensor].options["series"] = [line(sensor, points)]
            sensor_charts[sensor].options["xAxis"]["axisLabel"]["formatter"] = (
                DAYS if TIME_RANGES[str(time_span.value)] > DAY_MS else HOURS
            )
            sensor_charts[sensor].update()

    time_span.on_value_change(refresh)
    await refresh()
    updates = context.updates
    refresh_on_change(lambda: updates.device(device.hardware_id), refresh, context.clock)


def _rename_form(context: ConsoleContext, devices: Devices, device: Device) -> None:
    name = ui.input("Device name", value=device.friendly_name or "").classes("w-64")

    async def rename() -> None:
        target = f"devices/devices/{device.hardware_id}"
        async with context.changes.audited("device_rename", target):
            await devices.services.devices.rename(device.hardware_id, name.value or None)
        ui.notify("Renamed. The name applies from the next reading.")

    context.changes.control(ui.button("Rename").props("flat no-caps"), rename)


def _sensor_values(reading: Reading) -> None:
    for name, value in sorted(reading.sensors.items()):
        with ui.column().classes("gap-0"):
            ui.label(f"{float(value):,.2f}".rstrip("0").rstrip(".")).classes(
                "text-h5 text-weight-medium tally-numbers"
            )
            ui.label(name).classes("tally-quiet tally-small")


def _day(timestamp: str | None) -> str:
    return (
        "never" if timestamp is None else f"{datetime.fromisoformat(timestamp):%Y-%m-%d %H:%M} UTC"
    )


def _chart() -> dict[str, Any]:
    options = line_chart(x_axis={"type": "time"}, bottom=62, legend=False)
    options["yAxis"]["scale"] = True
    return options | {
        "dataZoom": [{"type": "inside"}, {"type": "slider", "height": 18, "bottom": 10}]
    }
