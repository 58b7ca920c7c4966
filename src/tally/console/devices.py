"""The devices pages: device list, and one device with a chart per sensor."""

from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

from nicegui import ui

from tally.console.api_keys import API_KEYS_PATH
from tally.console.charts import DAYS, HOURS, line, line_chart
from tally.console.context import ConsoleContext
from tally.console.formatting import format_ago
from tally.console.links import address, address_cell, device_path, link
from tally.console.live_updates import refresh_on_change
from tally.console.local_time import iso_time, local_time, time_cell
from tally.console.search import SearchResult, contains_words
from tally.console.shell import (
    Region,
    Shell,
    card,
    empty_state,
    heading,
    not_started,
    show_not_found,
)
from tally.console.toasts import show_confirmation
from tally.console.units import sensor_unit
from tally.devices.model.records import Device, Reading
from tally.devices.wiring import Devices
from tally.errors import NotFound, TallyError

MAX_DEVICES: Final = 200
MAX_SEARCHED: Final = 500
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
    if devices is not None:
        shell.search.add("Devices", partial(_find, devices))

    @shell.page(
        "/devices",
        "Devices",
        "Devices send sensor readings. Each reading is stored exactly once, even if it is resent.",
    )
    async def device_list() -> None:
        if devices is None:
            not_started("devices")
            return
        link("API keys", API_KEYS_PATH)
        await _device_list(context, devices)

    @shell.page("/devices/{hardware_id}", "Device", is_headed=False)
    async def device(hardware_id: str) -> None:
        if devices is None:
            heading("Device")
            not_started("devices")
            return
        try:
            selected = await devices.services.devices.get(hardware_id)
        except TallyError as error:
            show_not_found("Device", error.message, "/devices", "All devices")
            return
        await _device(context, devices, selected)


async def _find(devices: Devices, text: str) -> list[SearchResult]:
    """Search the most recently active devices, and any other by its whole ID."""
    page, _ = await devices.services.devices.by_activity(MAX_SEARCHED, None)
    found = [
        device for device in page if contains_words(text, device.hardware_id, device.friendly_name)
    ]
    if not found:
        with suppress(TallyError):
            found = [await devices.services.devices.get(text.upper())]
    return [
        SearchResult(
            device.friendly_name or device.hardware_id,
            device_path(device.hardware_id),
            f"{device.hardware_id}, firmware {device.firmware_version}",
        )
        for device in found
    ]


async def _device_list(context: ConsoleContext, devices: Devices) -> None:
    about = "Sorted by last activity (updated every 5 minutes). Select a device to see its charts."
    with card("All devices", about=about):
        table = ui.table(columns=DEVICE_COLUMNS, rows=[], row_key="id", pagination=15).classes(
            "w-full"
        )
        table.props("dense flat hide-no-data")
        table.add_slot("body-cell-id", address_cell("id"))
        table.add_slot("body-cell-seen", time_cell("seen"))
        with ui.column() as empty:
            empty_state(
                "No devices yet. Create an API key and configure a board with it, "
                'or start virtual boards with "tally sim boards".'
            )

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
        "href": address(device_path(device.hardware_id)),
        "seen": iso_time(device.last_seen_at),
        "seen_label": format_ago(
            (now - datetime.fromisoformat(device.last_seen_at)).total_seconds()
        ),
        "firmware": device.firmware_version,
        "sensors": ", ".join(device.capabilities.sensors),
    }


async def _device(context: ConsoleContext, devices: Devices, device: Device) -> None:
    heading(device.friendly_name or device.hardware_id)
    with ui.row().classes("gap-x-4 gap-y-0 tally-quiet"):
        if device.friendly_name is not None:
            ui.label(device.hardware_id)
        ui.label(f"Firmware {device.firmware_version}")
        with ui.row().classes("gap-1"):
            ui.label("First seen")
            local_time(device.first_registered_at)
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
            latest.show((), lambda: empty_state("No readings yet. The device sends the first."))
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
                        ui.echart(_chart(sensor_unit(sensor)))
                        .classes("w-full h-56")
                        .props(f"role=img aria-label='{sensor} over time'")
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
        show_confirmation("Renamed. The name applies from the next reading.")

    context.changes.control(ui.button("Rename").props("flat no-caps"), rename)


def _sensor_values(reading: Reading) -> None:
    for name, value in sorted(reading.sensors.items()):
        with ui.column().classes("gap-0"):
            amount = f"{float(value):,.2f}".rstrip("0").rstrip(".")
            ui.label(f"{amount} {sensor_unit(name)}".strip()).classes(
                "text-h5 text-weight-medium tally-numbers"
            )
            ui.label(name).classes("tally-quiet tally-small")


def _chart(unit: str) -> dict[str, Any]:
    options = line_chart(x_axis={"type": "time"}, unit=unit, bottom=62, legend=False)
    options["yAxis"]["scale"] = True
    return options | {
        "dataZoom": [{"type": "inside"}, {"type": "slider", "height": 18, "bottom": 10}]
    }
