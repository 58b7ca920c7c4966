"""The pages of alarms: those that need attention, all of them, and the history of one."""

from datetime import timedelta
from functools import partial
from typing import Any, Final

from nicegui import ui

from tally.console.access import page_session
from tally.console.context import ConsoleContext
from tally.console.operations.elements import TIME_CELL, relative_link_cell, show_time, time_text
from tally.console.shell import Region, Shell, card, empty_state, heading, not_started
from tally.devices.model.alarms import Alarm, AlarmEntry, AlarmRule, describe_condition
from tally.devices.model.records import PageKey
from tally.devices.service.alarms import AlarmService
from tally.devices.wiring import Devices
from tally.errors import TallyError
from tally.kit.clock import EPOCH

REFRESH_SECONDS: Final = 2.0
PAGE: Final = 50
STATES: Final = ("open", "acknowledged", "cleared", "all")
ABOUT: Final = "Alarms of devices. Programs create the rules with POST /devices/alarm-rules."
COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "id", "label": "Alarm", "field": "id", "align": "left"},
    {"name": "raised", "label": "Raised", "field": "raised", "align": "left"},
    {"name": "device", "label": "Device", "field": "device", "align": "left", "sortable": True},
    {"name": "rule", "label": "Rule", "field": "rule", "align": "left", "sortable": True},
    {"name": "condition", "label": "Condition", "field": "condition", "align": "left"},
    {"name": "state", "label": "State", "field": "state", "align": "left"},
]


def add_alarm_pages(shell: Shell, context: ConsoleContext) -> None:
    devices = context.backend("devices", Devices)

    @shell.page("/operations/alarms", "Alarms", ABOUT)
    async def alarms() -> None:
        if devices is None:
            not_started("devices")
            return
        view = AlarmList(devices.services.fleet.alarms)
        view.show()
        await view.refresh()
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)

    @shell.page("/operations/alarms/{alarm_id}", "Alarm", is_headed=False)
    async def alarm(alarm_id: str) -> None:
        if devices is None:
            heading("Alarm")
            not_started("devices")
            return
        view = AlarmView(context, devices.services.fleet.alarms, alarm_id)
        try:
            found = await view.load()
        except TallyError as error:
            heading("Alarm")
            empty_state(error.message)
            return
        heading(found.rule.name, f"Alarm {found.alarm_id} of device {found.hardware_id}")
        view.show(found)
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)


class AlarmList:
    """The list of one visitor: one state, newest first, page by page."""

    def __init__(self, alarms: AlarmService) -> None:
        self._alarms = alarms
        self._starts: list[PageKey | None] = [None]
        self._next: PageKey | None = None

    def show(self) -> None:
        with card("Alarms"):
            self._state = ui.select(list(STATES), value="open", label="State").classes("w-48")
            self._state.on_value_change(self._choose)
            self._table = (
                ui.table(columns=COLUMNS, rows=[], row_key="id")
                .classes("w-full")
                .props(
                    "dense flat wrap-cells hide-no-data hide-pagination"
                    " :rows-per-page-options='[0]'"
                )
            )
            self._table.add_slot("body-cell-id", relative_link_cell("alarms/"))
            self._table.add_slot("body-cell-raised", TIME_CELL)
            with ui.column() as self._empty:
                empty_state("No alarm has this state.")
            with ui.row().classes("gap-3"):
                self._previous = ui.button("Newer", on_click=self._go_back).props("flat")
                self._following = ui.button("Older", on_click=self._go_on).props("flat")

    async def _choose(self) -> None:
        self._starts = [None]
        await self.refresh()

    async def _go_on(self) -> None:
        if self._next is not None:
            self._starts.append(self._next)
            await self.refresh()

    async def _go_back(self) -> None:
        self._starts = self._starts[:-1] or [None]
        await self.refresh()

    async def refresh(self) -> None:
        state = None if self._state.value == "all" else self._state.value
        found, self._next = await self._alarms.list_alarms(state, None, PAGE, self._starts[-1])
        self._previous.set_enabled(len(self._starts) > 1)
        self._following.set_enabled(self._next is not None)
        self._empty.set_visibility(not found)
        rows = [_row(alarm) for alarm in found]
        if rows != self._table.rows:
            self._table.rows = rows
            self._table.update()


class AlarmView:
    """The page of one alarm, for one visitor."""

    def __init__(self, context: ConsoleContext, alarms: AlarmService, alarm_id: str) -> None:
        self._context = context
        self._alarms = alarms
        self._id = alarm_id

    async def load(self) -> Alarm:
        return await self._alarms.get_alarm(self._id)

    def show(self, alarm: Alarm) -> None:
        with card("State"):
            ui.label(_condition(alarm.rule))
            self._state = ui.label().props("role=status")
            self._button = ui.button("Acknowledge", icon="done")
        self._context.changes.control(self._button, self._acknowledge)
        with card("History", about="Oldest first."):
            self._history = Region(ui.column().classes("w-full gap-2"))
        self._draw(alarm)

    async def refresh(self) -> None:
        self._draw(await self.load())

    def _draw(self, alarm: Alarm) -> None:
        self._state.set_text(f"State: {alarm.state}")
        self._button.set_visibility(alarm.state == "open")
        self._history.show(alarm.history, partial(_draw_history, alarm.history))

    async def _acknowledge(self) -> None:
        target = f"devices/alarms/{self._id}"
        async with self._context.changes.audited("alarm_acknowledge", target):
            await self._alarms.acknowledge(self._id, page_session().operator.name)
        await self.refresh()


def _draw_history(entries: tuple[AlarmEntry, ...]) -> None:
    for entry in entries:
        with ui.row().classes("gap-3 items-center"):
            show_time(EPOCH + timedelta(milliseconds=entry.at_ms))
            value = "" if entry.value is None else f", value {entry.value}"
            ui.label(f"{entry.state}{f' by {entry.by}' if entry.by else ''}{value}")


def _row(alarm: Alarm) -> dict[str, str]:
    return {
        "id": alarm.alarm_id,
        "raised": time_text(EPOCH + timedelta(milliseconds=alarm.history[0].at_ms)),
        "device": alarm.hardware_id,
        "rule": alarm.rule.name,
        "condition": _condition(alarm.rule),
        "state": alarm.state,
    }


def _condition(rule: AlarmRule) -> str:
    return describe_condition(rule.condition, rule.unit or "")
