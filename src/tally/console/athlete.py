"""The page of an athlete: milestones, 3D model, ledger and audit trail."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from nicegui import ui

from tally.collect.model.records import (
    AuditEvent,
    Milestone,
    MilestoneStatus,
    MilestoneWithAwards,
)
from tally.collect.service.audit import AuditKey
from tally.collect.wiring import Collect
from tally.console.context import ConsoleContext
from tally.console.live_updates import refresh_on_change
from tally.console.local_time import iso_time, local_time, time_cell
from tally.console.shell import Region, card, empty_state
from tally.console.statue_scene import aim_camera, draw
from tally.console.toasts import report_problem
from tally.errors import TallyError

MAX_EVENTS: Final = 15
NOTICES_SECONDS: Final = 10.0
LEDGER_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "part", "label": "Part", "field": "part", "align": "left"},
    {"name": "threshold", "label": "Earned at", "field": "threshold", "align": "right"},
    {"name": "at", "label": "When", "field": "at", "align": "left"},
]


class AthleteView:
    """The page of one visitor for one athlete."""

    def __init__(self, collect: Collect, context: ConsoleContext, user_id: str) -> None:
        self._collect = collect
        self._context = context
        self._user_id = user_id
        self._chosen: str | None = None
        self._drawn: tuple[str, int] | None = None

    def build(self) -> None:
        self._notices = Region(ui.column().classes("gap-1 w-full"))
        with ui.element("div").classes("tally-side-main"):
            with ui.column().classes("gap-4 w-full"):
                with card("Milestones", about="Goals and their progress"):
                    self._milestones = Region(ui.column().classes("w-full gap-2"))
                with card("Ledger", about="Every minted part with its time"):
                    self._ledger = ui.table(
                        columns=LEDGER_COLUMNS, rows=[], row_key="part"
                    ).classes("w-full")
                    self._ledger.props("dense flat wrap-cells no-data-label='No parts yet'")
                    self._ledger.add_slot("body-cell-at", time_cell("at"))
            with card(
                "Model",
                about="Earned parts are coloured, missing parts are outlined. Drag to rotate.",
            ):
                self._title = ui.label().classes("text-weight-medium")
                self._scene_box = (
                    ui.element("div")
                    .classes("w-full")
                    .props("data-model=1 role=img aria-label='3D model'")
                )
        with card("Audit trail", about="Events of this account, newest first"):
            self._audit = Region(ui.column().classes("gap-2 w-full"))

    async def follow(self) -> None:
        """Show the athlete's data, now and after each change."""
        await self.refresh()
        updates = self._context.updates
        refresh_on_change(lambda: updates.athlete(self._user_id), self.refresh, self._context.clock)
        # Notices about Strava change without the athlete's items.
        ui.timer(NOTICES_SECONDS, self.refresh, immediate=False)

    async def refresh(self) -> None:
        try:
            milestones = sorted(
                await self._collect.services.milestones.all(self._user_id),
                key=lambda entry: entry.milestone.archived_at is not None,
            )
        except TallyError as error:
            report_problem(error.message)
            return
        data = (self._chosen, [entry.milestone for entry in milestones])
        self._milestones.show(data, lambda: self._list(milestones))
        current = next(
            (entry for entry in milestones if entry.milestone.milestone_id == self._chosen),
            milestones[0] if milestones else None,
        )
        if current is None:
            self._clear_model()
        else:
            await self._show_model(current)
        await self._show_notices()
        await self._show_audit()

    async def _show_notices(self) -> None:
        """Show what an operator or the athlete has to do."""
        connection = await self._collect.services.linking.status(self._user_id)
        needs_relink = connection is not None and connection.needs_relink
        parked, _ = await self._collect.services.retries.parked(None, MAX_EVENTS, None)
        notices = strava_notices(
            needs_relink=needs_relink,
            is_inactive=await self._is_inactive(),
            parked=len(parked),
        )
        self._notices.show(notices, lambda: _show_notice_lines(notices))

    async def _is_inactive(self) -> bool:
        try:
            for probe in self._collect.probes:
                await probe.check()
        except TallyError:
            return True
        return False

    def _list(self, milestones: list[MilestoneWithAwards]) -> None:
        if not milestones:
            empty_state("No milestones yet. The athlete creates the first one in the app.")
        for entry in milestones:
            milestone = entry.milestone
            with (
                ui.column()
                .classes("w-full gap-1 cursor-pointer tally-line q-pa-xs")
                .props("tabindex=0 role=button") as row
            ):
                with ui.row().classes("w-full justify-between gap-2"):
                    ui.label(
                        f"{milestone.sport.value.capitalize()} {_metres(milestone.total_target)}"
                    ).classes("text-weight-medium")
                    ui.label(
                        f"{_metres(float(milestone.progress))}, {milestone.percent} %"
                    ).classes("tally-numbers")
                share = min(1.0, float(milestone.progress) / milestone.total_target)
                bar = ui.linear_progress(share, show_value=False).classes("w-full tally-bar")
                bar.props(f"aria-label='{milestone.percent} percent' rounded size=8px")
                parts = f"{milestone.parts_minted} of {milestone.parts_total} parts"
                ui.label(f"{parts}, {_status(milestone)}").classes("tally-quiet tally-small")
            row.on("click", lambda chosen=milestone.milestone_id: self._choose(chosen))
            row.on("keydown.enter", lambda chosen=milestone.milestone_id: self._choose(chosen))

    async def _choose(self, milestone_id: str) -> None:
        self._chosen, self._drawn = milestone_id, None
        await self.refresh()

    def _clear_model(self) -> None:
        """Remove what belongs to the athlete shown before."""
        self._drawn = None
        self._ledger.rows = []
        self._ledger.update()
        self._title.set_text("No milestone, no model.")
        self._scene_box.clear()

    async def _show_model(self, entry: MilestoneWithAwards) -> None:
        milestone = entry.milestone
        self._ledger.rows = [
            {
                "part": f"{award.part.index}. {award.part.name}",
                "threshold": _metres(award.threshold),
                "at": iso_time(award.awarded_at),
            }
            for award in entry.awards
        ]
        self._ledger.update()
        drawn = (milestone.milestone_id, milestone.parts_minted)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        model = await self._collect.services.models.get(milestone.model_id)
        self._title.set_text(
            f"{model.meta.name}: {milestone.parts_minted} of {milestone.parts_total} parts earned"
        )
        self._scene_box.clear()
        with (
            self._scene_box,
            ui.scene(width=640, height=480, grid=False, background_color="#eef1ee").classes(
                "w-full"
            ) as scene,
        ):
            draw(scene, model, entry.ledger)
            aim_camera(scene, model)

    async def _show_audit(self) -> None:
        search = self._collect.services.audit_search
        events, _ = await search.page(
            search.complete_key(AuditKey(user=self._user_id)), MAX_EVENTS, None
        )
        self._audit.show(events, lambda: _show_events(events))


def strava_notices(*, needs_relink: bool, is_inactive: bool, parked: int) -> list[str]:
    """Return the notices about Strava, the most urgent first."""
    notices = []
    if is_inactive:
        notices.append("Strava has deactivated the application. Reactivate it at Strava.")
    if needs_relink:
        notices.append("Strava rejected the tokens of this athlete, who has to link again.")
    if parked:
        count = f"{parked} or more" if parked >= MAX_EVENTS else str(parked)
        noun = "event waits" if parked == 1 else "events wait"
        notices.append(f"{count} parked {noun} for a relink or an operator.")
    return notices


def _show_notice_lines(notices: Sequence[str]) -> None:
    for notice in notices:
        ui.label(notice).classes("text-weight-medium").props("role=status")


def _show_events(events: Sequence[AuditEvent]) -> None:
    if not events:
        empty_state("No events in the last 90 days.")
    for event in events:
        at = datetime.fromtimestamp(event.epoch, UTC)
        facts = ", ".join(f"{name} {value}" for name, value in event.facts.items())
        with ui.row().classes("gap-x-3 gap-y-0 items-baseline"):
            local_time(at, "second").classes("tally-quiet tally-small tally-numbers")
            ui.label(event.event_type).classes("tally-small text-weight-medium")
            ui.label(facts).classes("tally-quiet tally-small").style("overflow-wrap: anywhere")


def _status(milestone: Milestone) -> str:
    if milestone.archived_at is not None:
        is_completed = milestone.status is MilestoneStatus.COMPLETED
        return "archived, completed" if is_completed else "archived"
    if milestone.stalled_reason is not None:
        return f"stalled: {milestone.stalled_reason.replace('_', ' ')}"
    return milestone.status.value.lower()


def _metres(amount: float) -> str:
    """Format a distance or a height: `850 m`, `48.2 km`."""
    return f"{amount:,.0f} m" if amount < 1000 else f"{amount / 1000:,.1f} km"
