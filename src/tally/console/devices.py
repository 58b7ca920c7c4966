"""The devices' pages: the fleet by activity, the keys, and one device with a chart for each sensor."""

from collections.abc import Callable
from typing import Any, Final

from nicegui import ui

from tally.console.desk import Desk
from tally.console.shell import Shell, card, not_started, nothing_here
from tally.devices.assembly import Devices
from tally.devices.model import ApiKey, Device, Reading
from tally.errors import NotFound, TallyError

SHOWN: Final = 200
KEYS: Final = 50
POINTS: Final = 240
# What can be looked at in a chart, in milliseconds.
SPANS: Final = {"10 minutes": 600_000, "1 hour": 3_600_000, "1 day": 86_400_000, "7 days": 604_800_000}
FLEET_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "id", "label": "Device", "field": "id", "align": "left"},
    {"name": "name", "label": "Name", "field": "name", "align": "left"},
    {"name": "seen", "label": "Last seen", "field": "seen", "align": "left", "sortable": True},
    {"name": "firmware", "label": "Firmware", "field": "firmware", "align": "left"},
    {"name": "sensors", "label": "Sensors", "field": "sensors", "align": "left"},
]


def put_devices(shell: Shell, desk: Desk) -> None:
    devices = desk.backend("devices", Devices)

    @shell.page("/devices", "Devices")
    async def fleet() -> None:
        if devices is None:
            not_started("devices")
            return
        await _fleet(devices)
        await _keys(devices)

    @shell.page("/devices/{hardware_id}", "Device")
    async def device(hardware_id: str) -> None:
        if devices is None:
            not_started("devices")
            return
        try:
            shown = await devices.handlers.registry.get(hardware_id)
        except TallyError as error:
            nothing_here(error.message)
            return
        await _device(desk, devices, shown)


async def _fleet(devices: Devices) -> None:
    with card("The fleet, the latest first"):
        table = ui.table(columns=FLEET_COLUMNS, rows=[], row_key="id", pagination=15).classes("w-full").props("dense flat")
        table.on("rowClick", lambda event: ui.navigate.to(f"/devices/{event.args[1]['id']}"))
        empty = ui.column()

    async def refresh() -> None:
        found, _ = await devices.handlers.registry.by_activity(SHOWN, None)
        table.rows = [_fleet_row(each) for each in found]
        table.update()
        empty.clear()
        if not found:
            with empty:
                nothing_here("No board has been heard of yet: tally sim boards makes some.")

    await refresh()
    ui.timer(3.0, refresh)


def _fleet_row(device: Device) -> dict[str, str]:
    return {
        "id": device.hardware_id,
        "name": device.friendly_name or "",
        "seen": device.last_seen_at,
        "firmware": device.firmware_version,
        "sensors": ", ".join(device.capabilities.sensors),
    }


async def _keys(devices: Devices) -> None:
    with card("API keys", classes="q-mt-md"):
        with ui.row().classes("items-center"):
            description = ui.input("What the new key is for").classes("w-64")
            ui.button("Make a key", icon="key", on_click=lambda: make())  # noqa: PLW0108  (it is defined below)
        listed = ui.column().classes("w-full gap-1")

    async def refresh() -> None:
        found, _ = await devices.handlers.keys.newest_first(KEYS, None)
        listed.clear()
        with listed:
            for key in found:
                _key_row(devices, key, refresh)

    async def make() -> None:
        _, raw = await devices.handlers.keys.create(description.value or None)
        with ui.dialog() as dialog, ui.card():
            ui.label("The key is shown this once, and never again").props("role=heading aria-level=2")
            ui.label(raw).classes("text-weight-bold").style("font-family: monospace").props("data-new-key=1")
            ui.button("I have it", on_click=dialog.close)
        dialog.value = True
        description.set_value("")
        await refresh()

    await refresh()


def _key_row(devices: Devices, key: ApiKey, refresh: Callable[[], Any]) -> None:
    async def revoke() -> None:
        await devices.handlers.keys.revoke(key.key_id)
        await refresh()

    with ui.row().classes("items-center gap-3"):
        ui.icon("key" if key.is_active else "key_off").props("aria-hidden=true")
        ui.label(key.description or "without a description")
        ui.label(f"made {key.created_at}, last used {key.last_used_at or 'never'}").classes("tally-quiet")
        if key.is_active:
            ui.button("Revoke", on_click=revoke).props("flat dense color=negative no-caps")
        else:
            ui.label("revoked").classes("text-negative")


async def _device(desk: Desk, devices: Devices, device: Device) -> None:
    _device_head(devices, device)
    with card("Live readings", classes="q-mt-md"):
        latest = ui.label("No reading yet").classes("tally-figure").style("font-size: 1.1rem")
    span = ui.select(list(SPANS), value="10 minutes", label="Time shown").classes("w-48 q-mt-md")
    charts = ui.grid(columns="repeat(auto-fit, minmax(460px, 1fr))").classes("w-full gap-4")
    drawn: dict[str, ui.echart] = {}

    async def refresh() -> None:
        try:
            reading = await devices.handlers.history.latest(device.hardware_id)
        except NotFound:
            return
        latest.set_text(_told(reading))
        now = desk.clock.milliseconds()
        since = max(0, now - SPANS[str(span.value)])
        for sensor in sorted(reading.sensors):
            series = await devices.handlers.history.series(device.hardware_id, sensor, (since, now), POINTS)
            if sensor not in drawn:
                with charts, card(sensor):
                    drawn[sensor] = ui.echart(_chart(sensor)).classes("w-full h-56").props(f"aria-label='{sensor} over time'")
            drawn[sensor].options["series"][0]["data"] = [
                [bucket.from_ms, round(float(bucket.mean), 3)] for bucket in series.buckets
            ]
            drawn[sensor].update()

    span.on_value_change(refresh)
    await refresh()
    ui.timer(3.0, refresh)


def _device_head(devices: Devices, device: Device) -> None:
    with card(device.friendly_name or device.hardware_id):
        ui.label(f"{device.hardware_id}, firmware {device.firmware_version}, first heard of {device.first_registered_at}")
        with ui.row().classes("items-center"):
            name = ui.input("Name", value=device.friendly_name or "")

            async def rename() -> None:
                await devices.handlers.registry.rename(device.hardware_id, name.value or None)
                ui.notify("Renamed")

            ui.button("Rename", on_click=rename).props("flat no-caps")


def _told(reading: Reading) -> str:
    return ", ".join(f"{name} {float(value):g}" for name, value in sorted(reading.sensors.items()))


def _chart(sensor: str) -> dict[str, Any]:
    return {
        "animation": False,
        "grid": {"left": 55, "right": 25, "top": 15, "bottom": 70},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "time"},
        "yAxis": {"type": "value", "scale": True},
        "dataZoom": [{"type": "inside"}, {"type": "slider", "height": 18, "bottom": 12}],
        "series": [{"name": sensor, "type": "line", "showSymbol": False, "data": []}],
    }
