"""The collect page: an athlete's milestones, 3D model, ledger and audit trail."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from nicegui import ui

from tally.collect.model.records import AuditEvent, MilestoneWithAwards
from tally.collect.service.audit import AuditKey
from tally.collect.wiring import Collect
from tally.console.context import ConsoleContext
from tally.console.mint_counter import PART_MINTED
from tally.console.shell import Region, Shell, card, empty_state, not_started
from tally.console.statue_scene import aim_camera, draw
from tally.errors import TallyError

ABOUT: Final = "Workouts arrive from Strava. Each twelfth of a goal mints one part, permanently."
MAX_EVENTS: Final = 15
LEDGER_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "part", "label": "Part", "field": "part", "align": "left"},
    {"name": "threshold", "label": "Earned at", "field": "threshold", "align": "right"},
    {"name": "at", "label": "When", "field": "at", "align": "left"},
]


def add_collect_pages(shell: Shell, context: ConsoleContext) -> None:
    collect = context.backend("collect", Collect)

    @shell.page("/collect", "Collect", ABOUT)
    async def athletes() -> None:
        if collect is None:
            not_started("collect")
            return
        view = AthleteView(collect)
        known = context.athlete_names()
        with ui.row().classes("items-end gap-4 w-full"):
            chosen = ui.select(known, label="Athlete", with_input=True).classes("w-72")
            typed = ui.input("Or a user ID").classes("w-72").props("hint='Press Enter'")
        view.build()

        async def show() -> None:
            await view.show(str(typed.value or chosen.value or ""))

        chosen.on_value_change(show)
        typed.on("keydown.enter", show)
        if known:
            chosen.set_value(await _latest_athlete(collect, known))
        ui.timer(2.0, view.refresh)


async def _latest_athlete(collect: Collect, known: Mapping[str, str]) -> str:
    """Return the athlete who minted the latest part, or the first by name."""
    search = collect.services.audit_search
    events, _ = await search.page(search.complete_key(AuditKey(event=PART_MINTED)), 1, None)
    return next((event.user_id for event in events if event.user_id in known), next(iter(known)))


class AthleteView:
    """The page of one visitor for one athlete."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._user_id = ""
        self._chosen: str | None = None
        self._drawn: tuple[str, int] | None = None

    def build(self) -> None:
        with ui.element("div").classes("tally-side-main"):
            with ui.column().classes("gap-4 w-full"):
                with card("Milestones", about="Goals and their progress"):
                    self._milestones = Region(ui.column().classes("w-full gap-2"))
                with card("Ledger", about="Every minted part with its time"):
                    self._ledger = ui.table(
                        columns=LEDGER_COLUMNS, rows=[], row_key="part"
                    ).classes("w-full")
                    self._ledger.props("dense flat wrap-cells no-data-label='No parts yet'")
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

    async def show(self, user_id: str) -> None:
        self._user_id, self._chosen, self._drawn = user_id, None, None
        await self.refresh()

    async def refresh(self) -> None:
        if not self._user_id:
            return
        try:
            milestones = await self._collect.services.milestones.all(self._user_id)
        except TallyError as error:
            ui.notify(error.message, type="warning")
            return
        data = (self._chosen, [entry.milestone for entry in milestones])
        self._milestones.show(data, lambda: self._list(milestones))
        current = next(
            (entry for entry in milestones if entry.milestone.milestone_id == self._chosen),
            milestones[0] if milestones else None,
        )
        if current is not None:
            await self._show_model(
                await self._collect.services.milestones.get(
                    self._user_id, current.milestone.milestone_id
                )
            )
        await self._show_audit()

    def _list(self, milestones: list[MilestoneWithAwards]) -> None:
        if not milestones:
            empty_state("No milestones yet.")
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
                status = f"{parts}, {milestone.status.value.lower()}"
                ui.label(status).classes("tally-quiet tally-small")
            row.on("click", lambda chosen=milestone.milestone_id: self._choose(chosen))
            row.on("keydown.enter", lambda chosen=milestone.milestone_id: self._choose(chosen))

    async def _choose(self, milestone_id: str) -> None:
        self._chosen, self._drawn = milestone_id, None
        await self.refresh()

    async def _show_model(self, entry: MilestoneWithAwards) -> None:
        milestone = entry.milestone
        self._ledger.rows = [
            {
                "part": f"{award.part.index}. {award.part.name}",
                "threshold": _metres(award.threshold),
                "at": f"{datetime.fromisoformat(award.awarded_at):%Y-%m-%d %H:%M}",
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


def _show_events(events: Sequence[AuditEvent]) -> None:
    if not events:
        empty_state("No events yet.")
    for event in events:
        at = datetime.fromtimestamp(event.epoch, UTC)
        facts = ", ".join(f"{name} {value}" for name, value in event.facts.items())
        with ui.row().classes("gap-x-3 gap-y-0 items-baseline"):
            ui.label(f"{at:%Y-%m-%d %H:%M:%S} UTC").classes("tally-quiet tally-small tally-numbers")
            ui.label(event.event_type).classes("tally-small text-weight-medium")
            ui.label(facts).classes("tally-quiet tally-small").style("overflow-wrap: anywhere")


def _metres(amount: float) -> str:
    """Format a distance or a height: `850 m`, `48.2 km`."""
    return f"{amount:,.0f} m" if amount < 1000 else f"{amount / 1000:,.1f} km"
