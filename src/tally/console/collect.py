"""Collect's page: an athlete's milestones, the model with its parts as they are earned, the ledger and the audit trail."""

from datetime import UTC, datetime
from typing import Any, Final

from nicegui import ui

from tally.collect.assembly import Collect
from tally.collect.model import Held
from tally.collect.service.audit_search import AuditKey
from tally.console.desk import Desk
from tally.console.model import draw
from tally.console.shell import Shell, card, not_started, nothing_here
from tally.errors import TallyError
from tally.sim.oidc.people import person_named

EVENTS: Final = 15
LEDGER_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "part", "label": "Part", "field": "part", "align": "left"},
    {"name": "threshold", "label": "Earned at", "field": "threshold", "align": "right"},
    {"name": "at", "label": "When", "field": "at", "align": "left"},
]


def put_collect(shell: Shell, desk: Desk) -> None:
    collect = desk.backend("collect", Collect)

    @shell.page("/collect", "Collect")
    async def athletes() -> None:
        if collect is None:
            not_started("collect")
            return
        view = AthleteView(collect)
        known = athletes_of(desk)
        with ui.row().classes("items-end gap-4"):
            chosen = ui.select(known, label="Athlete", with_input=True).classes("w-72")
            typed = ui.input("Or a person's id").classes("w-80")
        view.put()

        async def show() -> None:
            await view.show(str(typed.value or chosen.value or ""))

        chosen.on_value_change(show)
        typed.on("keydown.enter", show)
        if known:
            chosen.set_value(next(iter(known)))
        ui.timer(2.0, view.refresh)


def athletes_of(desk: Desk) -> dict[str, str]:
    """Made-up athletes by the id that they have here; in production there is no list of people, on purpose."""
    strava = desk.outside.strava if desk.outside is not None else None
    if strava is None:
        return {}
    names = [f"{athlete.firstname} {athlete.lastname}" for athlete in strava.athletes.values()]
    return {person_named(name).sub: name for name in sorted(names)}


class AthleteView:
    """What one visitor sees of one athlete."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._user_id = ""
        self._chosen: str | None = None
        self._drawn: tuple[str, int] | None = None

    def put(self) -> None:
        with ui.grid(columns="minmax(0, 2fr) minmax(0, 3fr)").classes("w-full gap-4"):
            with ui.column().classes("gap-4"):
                with card("Milestones"):
                    self._milestones = ui.column().classes("w-full gap-3")
                with card("Ledger"):
                    self._ledger = ui.table(columns=LEDGER_COLUMNS, rows=[], row_key="part").classes("w-full").props("dense flat")
            with card("The model"):
                self._title = ui.label().classes("tally-quiet")
                self._stage = ui.element("div").classes("w-full").props("data-model=1 role=img aria-label='The model in 3D'")
        with card("Audit trail", classes="q-mt-md"):
            self._audit = ui.column().classes("gap-1")

    async def show(self, user_id: str) -> None:
        self._user_id, self._chosen, self._drawn = user_id, None, None
        await self.refresh()

    async def refresh(self) -> None:
        if not self._user_id:
            return
        try:
            held = await self._collect.handlers.milestones.all(self._user_id)
        except TallyError as error:
            ui.notify(error.message, type="warning")
            return
        self._list(held)
        current = next((each for each in held if each.milestone.milestone_id == self._chosen), held[0] if held else None)
        if current is not None:
            await self._show_model(await self._collect.handlers.milestones.get(self._user_id, current.milestone.milestone_id))
        await self._show_audit()

    def _list(self, held: list[Held]) -> None:
        self._milestones.clear()
        with self._milestones:
            if not held:
                nothing_here("No milestone yet.")
            for each in held:
                milestone = each.milestone
                with ui.column().classes("w-full gap-0 cursor-pointer").props("tabindex=0") as row:
                    ui.label(f"{milestone.sport.value}: {float(milestone.progress):,.0f} of {milestone.total_target:,}")
                    share = min(1.0, float(milestone.progress) / milestone.total_target)
                    bar = ui.linear_progress(share, show_value=False)
                    bar.props(f"aria-label='{milestone.percent} percent'").classes("w-full")
                    ui.label(
                        f"{milestone.parts_minted} of {milestone.parts_total} parts, {milestone.status.value.lower()}"
                    ).classes("tally-quiet")
                row.on("click", lambda chosen=milestone.milestone_id: self._choose(chosen))

    async def _choose(self, milestone_id: str) -> None:
        self._chosen, self._drawn = milestone_id, None
        await self.refresh()

    async def _show_model(self, held: Held) -> None:
        milestone = held.milestone
        self._ledger.rows = [
            {"part": f"{award.part.index}. {award.part.name}", "threshold": f"{award.threshold:,}", "at": award.awarded_at}
            for award in held.awards
        ]
        self._ledger.update()
        drawn = (milestone.milestone_id, milestone.parts_minted)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        model = await self._collect.handlers.shelf.get(milestone.model_id)
        self._title.set_text(f"{model.meta.name}: {milestone.parts_minted} of {milestone.parts_total} parts earned")
        self._stage.clear()
        with self._stage, ui.scene(width=640, height=480, grid=False, background_color="#eef1ee").classes("w-full") as scene:
            draw(scene, model, held.ledger)
            scene.move_camera(x=1.7, y=-2.3, z=1.8, look_at_x=0, look_at_y=0, look_at_z=0.8, duration=0)

    async def _show_audit(self) -> None:
        search = self._collect.handlers.audit_search
        events, _ = await search.page(search.checked(AuditKey(user=self._user_id)), EVENTS, None)
        self._audit.clear()
        with self._audit:
            if not events:
                nothing_here("Nothing was audited yet.")
            for event in events:
                at = datetime.fromtimestamp(event.epoch, UTC)
                facts = ", ".join(f"{name} {value}" for name, value in event.facts.items())
                with ui.row().classes("gap-3"):
                    ui.label(f"{at:%Y-%m-%d %H:%M:%S}").classes("tally-quiet")
                    ui.label(event.event_type)
                    ui.label(facts).classes("tally-quiet")
