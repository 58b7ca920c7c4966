"""The page of API keys: devices authenticate with them."""

from collections.abc import Awaitable, Callable
from typing import Final

from nicegui import ui

from tally.console.access import Changes
from tally.console.context import ConsoleContext
from tally.console.links import link
from tally.console.local_time import local_time
from tally.console.shell import Region, Shell, card, empty_state, not_started
from tally.console.toasts import show_confirmation
from tally.devices.model.records import ApiKey
from tally.devices.wiring import Devices

API_KEYS_PATH: Final = "/devices/keys"
MAX_KEYS: Final = 50
ABOUT: Final = (
    "Devices authenticate with an API key. A key is shown only once, when it is created; "
    "after that, its first characters identify it."
)


def add_api_key_pages(shell: Shell, context: ConsoleContext) -> None:
    devices = context.backend("devices", Devices)

    @shell.page(API_KEYS_PATH, "API keys", ABOUT)
    async def api_keys() -> None:
        if devices is None:
            not_started("devices")
            return
        link("All devices", "/devices")
        await ApiKeyList(context, devices).show()


class ApiKeyList:
    """The page of one visitor."""

    def __init__(self, context: ConsoleContext, devices: Devices) -> None:
        self._changes = context.changes
        self._keys = devices.services.keys

    async def show(self) -> None:
        with card("New key"), ui.row().classes("items-center gap-3 w-full"):
            self._description = ui.input(
                "Description",
                validation={"Describe what uses the key": lambda text: bool((text or "").strip())},
            )
            self._description.classes("col-grow").without_auto_validation()
            self._description.props("maxlength=256 hint='What uses the key, such as a greenhouse'")
            button = ui.button("Create key", icon="key")
        self._changes.control(button, self._create)
        with card("Keys", about=f"Newest first, at most {MAX_KEYS}"):
            self._list = Region(ui.element("ul").classes("tally-list"))
        await self.refresh()

    async def refresh(self) -> None:
        keys, _ = await self._keys.newest_first(MAX_KEYS, None)
        self._list.show(keys, lambda: self._draw(keys))

    def _draw(self, keys: list[ApiKey]) -> None:
        if not keys:
            with ui.element("li"):
                empty_state("No keys yet. Describe what uses the first one, and create it.")
        for key in keys:
            with ui.element("li").classes("tally-key").props("data-key=1"):
                self._key(key)

    def _key(self, key: ApiKey) -> None:
        with ui.column().classes("gap-0 col"):
            ui.label(key.description or "No description").classes("text-weight-medium")
            with ui.row().classes("gap-x-3 gap-y-0 tally-quiet tally-small"):
                ui.label(f"{key.prefix}…" if key.prefix else "Created by an earlier version").style(
                    "font-family: monospace"
                )
                with ui.row().classes("gap-1"):
                    ui.label("Created")
                    local_time(key.created_at)
                with ui.row().classes("gap-1"):
                    ui.label("Last used")
                    local_time(key.last_used_at)
        if not key.is_active:
            ui.label("revoked").classes("text-negative")
            return
        name = key.description or key.prefix or key.key_id
        button = ui.button("Revoke").props("flat dense color=negative no-caps")
        button.props["aria-label"] = f"Revoke {name}"

        async def ask() -> None:
            confirm_revocation(self._changes, name, lambda: self._revoke(key))

        self._changes.control(button, ask)

    async def _create(self) -> None:
        if not self._description.validate():
            return
        async with self._changes.audited("api_key_create", "devices/api-keys"):
            _, raw = await self._keys.create(str(self._description.value).strip())
        show_new_key(raw)
        self._description.set_value("")
        await self.refresh()

    async def _revoke(self, key: ApiKey) -> None:
        async with self._changes.audited("api_key_revoke", f"devices/api-keys/{key.key_id}"):
            await self._keys.revoke(key.key_id)
        show_confirmation("The key is revoked. Servers refuse it within seconds.")
        await self.refresh()


def show_new_key(raw: str) -> None:
    """Show the key in a dialog, with a button that copies it."""
    with ui.dialog() as dialog, ui.card().classes("tally-dialog"):
        ui.label("Copy the key now. It is not shown again.").props("role=heading aria-level=2")
        ui.label(raw).classes("text-weight-bold tally-secret").props("data-new-key=1")
        with ui.row().classes("w-full justify-end"):
            # In the browser, because the clipboard needs the click itself.
            copy = ui.button("Copy", icon="content_copy").props("no-caps")
            copy.on("click", js_handler=f"() => navigator.clipboard.writeText('{raw}')")
            copy.on("click", lambda: show_confirmation("Copied."))
            ui.button("Done", on_click=dialog.close).props("flat no-caps")
    dialog.value = True


def confirm_revocation(changes: Changes, name: str, revoke: Callable[[], Awaitable[None]]) -> None:
    """Ask before a key stops working."""

    async def run() -> None:
        dialog.value = False
        await revoke()

    with ui.dialog() as dialog, ui.card().classes("tally-dialog"):
        ui.label(f"Revoke {name}?").props("role=heading aria-level=2")
        ui.label("Devices that use this key are refused at once. This cannot be undone.")
        with ui.row().classes("w-full justify-end"):
            ui.button("Keep", on_click=dialog.close).props("flat no-caps autofocus")
            button = ui.button("Revoke key").props("color=negative no-caps")
            changes.control(button, run)
    dialog.value = True
