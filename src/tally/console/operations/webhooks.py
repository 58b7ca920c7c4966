"""The pages of webhooks: registers, disables and deletes them, and replays parked deliveries.

Only the origin of a URL is shown, because the path of a receiver often contains a secret.
"""

from datetime import timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.operations.elements import (
    TIME_CELL,
    ask_to_confirm,
    relative_link_cell,
    show_secret,
    time_text,
)
from tally.console.shell import Shell, card, empty_state, heading
from tally.errors import TallyError
from tally.instance.repository.webhook_records import DeliveryState, QueuedDelivery, Webhook
from tally.instance.webhooks.service import WebhookChange
from tally.kit.clock import EPOCH
from tally.kit.masking import mask_text

REFRESH_SECONDS: Final = 3.0
DELIVERIES: Final = 100
ABOUT: Final = "Tally sends events to these receivers, signed and in order."
WEBHOOK_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "id", "label": "Webhook", "field": "id", "align": "left"},
    {"name": "receiver", "label": "Receiver", "field": "receiver", "align": "left"},
    {"name": "description", "label": "Description", "field": "description", "align": "left"},
    {"name": "kinds", "label": "Events", "field": "kinds", "align": "left"},
    {"name": "state", "label": "State", "field": "state", "align": "left"},
    {"name": "created", "label": "Created", "field": "created", "align": "left"},
]
DELIVERY_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "created", "label": "Created", "field": "created", "align": "left"},
    {"name": "kind", "label": "Event", "field": "kind", "align": "left"},
    {"name": "message", "label": "Message ID", "field": "message", "align": "left"},
    {"name": "attempts", "label": "Attempts", "field": "attempts", "align": "right"},
    {"name": "error", "label": "Last error", "field": "error", "align": "left"},
]


def add_webhook_pages(shell: Shell, context: ConsoleContext) -> None:
    @shell.page("/operations/webhooks", "Webhooks", ABOUT)
    async def webhooks() -> None:
        view = WebhookListView(context)
        view.show()
        await view.refresh()
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)

    @shell.page("/operations/webhooks/{webhook_id}", "Webhook", is_headed=False)
    async def webhook(webhook_id: str) -> None:
        try:
            found = await context.administration.service.get(webhook_id[:64])
        except TallyError as error:
            heading("Webhook")
            empty_state(error.message)
            return
        heading(found.description or "Webhook", f"{found.webhook_id}, {_origin(found)}")
        view = WebhookView(context, found)
        view.show()
        await view.refresh()
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)


class WebhookListView:
    """The list and the form of one visitor."""

    def __init__(self, context: ConsoleContext) -> None:
        self._changes = context.changes
        self._service = context.administration.service

    def show(self) -> None:
        with card("Registered webhooks"):
            self._table = (
                ui.table(columns=WEBHOOK_COLUMNS, rows=[], row_key="id", pagination=25)
                .classes("w-full")
                .props("dense flat wrap-cells hide-no-data")
            )
            self._table.add_slot("body-cell-id", relative_link_cell("webhooks/"))
            self._table.add_slot("body-cell-created", TIME_CELL)
            with ui.column() as self._empty:
                empty_state("No webhook is registered.")
        with card("New webhook", about="It receives the events from now on."):
            with ui.row().classes("items-end gap-3 w-full"):
                self._url = ui.input("URL").classes("w-96 max-w-full")
                kinds = list(self._service.kinds())
                self._kinds = ui.select(kinds, label="Events", multiple=True).classes("w-72")
                self._kinds.props("use-chips")
                self._description = ui.input("Description").classes("w-72")
            button = ui.button("Create webhook", icon="add")
        self._changes.control(button, self._create)

    async def refresh(self) -> None:
        found = await self._service.all()
        self._empty.set_visibility(not found)
        rows = [_webhook_row(webhook) for webhook in found]
        if rows != self._table.rows:
            self._table.rows = rows
            self._table.update()

    async def _create(self) -> None:
        url, kinds = (self._url.value or "").strip(), self._kinds.value or []
        async with self._changes.audited("webhook_create", "webhooks", kinds=kinds):
            webhook, secret = await self._service.create(
                url, kinds, self._description.value or None, None
            )
        show_secret(f"Signing secret of {webhook.webhook_id}", secret.reveal())
        self._url.set_value("")
        await self.refresh()


class WebhookView:
    """The page of one webhook, for one visitor."""

    def __init__(self, context: ConsoleContext, webhook: Webhook) -> None:
        self._changes = context.changes
        self._service = context.administration.service
        self._id = webhook.webhook_id
        self._tables: dict[DeliveryState, ui.table] = {}

    def show(self) -> None:
        with card("State"):
            self._state = ui.label().props("role=status")
            self._kinds = ui.label().classes("tally-quiet")
            with ui.row().classes("gap-3"):
                self._enable = ui.button("Enable")
                self._disable = ui.button("Disable").props("flat")
                delete = ui.button("Delete webhook").props("flat color=negative")
        self._changes.control(self._enable, partial(self._set_enabled, is_enabled=True))
        self._changes.control(self._disable, partial(self._set_enabled, is_enabled=False))
        self._changes.control(delete, self._confirm_delete)
        parked = "Failed for a day, or while the webhook was disabled. Replaying sends them again."
        with card("Parked deliveries", about=parked):
            self._replay_button = ui.button("Replay parked deliveries", icon="replay")
            self._delivery_table(DeliveryState.PARKED)
        self._changes.control(self._replay_button, self._replay)
        with card("Pending deliveries", about="Sent soon, or tried again after a failure."):
            self._delivery_table(DeliveryState.PENDING)

    def _delivery_table(self, state: DeliveryState) -> None:
        table = ui.table(columns=DELIVERY_COLUMNS, rows=[], row_key="id", pagination=25)
        table.classes("w-full").props(
            f"dense flat wrap-cells no-data-label='No {state.value} delivery.'"
        )
        table.add_slot("body-cell-created", TIME_CELL)
        self._tables[state] = table

    async def refresh(self) -> None:
        try:
            webhook = await self._service.get(self._id)
        except TallyError as error:
            self._state.set_text(error.message)
            return
        self._state.set_text(_state(webhook))
        self._kinds.set_text(f"Events: {', '.join(webhook.kinds)}")
        self._enable.set_visibility(webhook.disabled_reason is not None)
        self._disable.set_visibility(webhook.disabled_reason is None)
        for state, table in self._tables.items():
            found, _ = await self._service.page(self._id, state, DELIVERIES, None)
            rows = [_delivery_row(delivery) for delivery in found]
            if rows != table.rows:
                table.rows = rows
                table.update()
        self._replay_button.set_visibility(bool(self._tables[DeliveryState.PARKED].rows))

    async def _set_enabled(self, *, is_enabled: bool) -> None:
        action = "webhook_enable" if is_enabled else "webhook_disable"
        async with self._changes.audited(action, f"webhooks/{self._id}"):
            await self._service.update(self._id, WebhookChange(is_enabled=is_enabled))
        await self.refresh()

    async def _replay(self) -> None:
        async with self._changes.audited("webhook_replay", f"webhooks/{self._id}"):
            count = await self._service.replay(self._id, None)
        ui.notify("1 delivery replayed" if count == 1 else f"{count} deliveries replayed")
        await self.refresh()

    async def _confirm_delete(self) -> None:
        question = "Delete this webhook and its deliveries?"
        ask_to_confirm(self._changes, question, "Delete", self._delete)

    async def _delete(self) -> None:
        async with self._changes.audited("webhook_delete", f"webhooks/{self._id}"):
            await self._service.delete(self._id)
        ui.navigate.to("/operations/webhooks")


def _origin(webhook: Webhook) -> str:
    parts = urlsplit(webhook.url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _state(webhook: Webhook) -> str:
    return f"Disabled: {webhook.disabled_reason}" if webhook.disabled_reason else "Enabled"


def _time(milliseconds: int) -> str:
    return time_text(EPOCH + timedelta(milliseconds=milliseconds))


def _webhook_row(webhook: Webhook) -> dict[str, str]:
    return {
        "id": webhook.webhook_id,
        "receiver": _origin(webhook),
        "description": webhook.description or "",
        "kinds": ", ".join(webhook.kinds),
        "state": _state(webhook),
        "created": _time(webhook.created_at),
    }


def _delivery_row(delivery: QueuedDelivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "created": _time(delivery.created_at),
        "kind": delivery.kind,
        "message": delivery.message_id,
        "attempts": delivery.attempts,
        "error": mask_text(delivery.error or ""),
    }
