"""The home page: a tile per backend, request rates, latencies, engines and jobs."""

from typing import Any, Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.dashboard import (
    ENGINE_REFRESH_SECONDS,
    REFRESH_SECONDS,
    BackendHealth,
    Dashboard,
)
from tally.console.engines import EngineStatus
from tally.console.formatting import format_ago, format_duration
from tally.console.shell import Region, Shell, card
from tally.console.tiles import STATUS_ICONS, TILES, BackendTile, absent_tile
from tally.console.traffic_charts import traffic_charts
from tally.kit.jobs import JobOutcome

ABOUT: Final = "Live status of all backends. Select a tile for details."
DEMO: Final = "Demo: simulated users and services send real requests to the backends."
JOB_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Job", "field": "name", "align": "left"},
    {"name": "outcome", "label": "Last run", "field": "outcome", "align": "left"},
    {"name": "took", "label": "Took", "field": "took", "align": "right"},
]
# Job name above its description; outcome as icon and text above the error.
JOB_CELL: Final = """
<q-td :props="props"><div>{{ props.row.name }}</div>
<div class="tally-quiet tally-small">{{ props.row.description }}</div></q-td>
"""
OUTCOME_CELL: Final = """
<q-td :props="props"><div class="row no-wrap items-center" style="gap: .4rem">
<q-icon :name="props.row.icon" :class="props.row.colour" size="xs" aria-hidden="true" />
<span :title="props.row.at">{{ props.row.outcome }}</span></div>
<div v-if="props.row.error" class="text-negative tally-small">{{ props.row.error }}</div></q-td>
"""
OUTCOME_ICONS: Final = {
    True: STATUS_ICONS[BackendHealth.HEALTHY],
    False: STATUS_ICONS[BackendHealth.FAILING],
}


def add_home_pages(shell: Shell, context: ConsoleContext, dashboard: Dashboard) -> None:
    @shell.page("/", "Home", ABOUT)
    def home() -> None:
        if context.outside is not None and context.outside.urls:
            with ui.row().classes("items-center gap-2 no-wrap tally-quiet tally-small"):
                ui.icon("theater_comedy").props("aria-hidden=true")
                ui.label(DEMO)
        _tiles(context, dashboard)
        traffic_charts(context)
        _engines(context, dashboard)
        _jobs(context)


def _tiles(context: ConsoleContext, dashboard: Dashboard) -> None:
    tiles: dict[str, BackendTile] = {}
    with ui.element("div").classes("tally-tiles"):
        for backend in TILES:
            if backend.name in context.backends:
                tiles[backend.name] = BackendTile(backend)
            else:
                absent_tile(backend)

    async def refresh() -> None:
        contents = await dashboard.tiles.get()
        for name, tile in tiles.items():
            tile.show(contents[name], context.traffic.latest(name))

    ui.timer(REFRESH_SECONDS, refresh)


def _engines(context: ConsoleContext, dashboard: Dashboard) -> None:
    with card("Store and databases", about=f"Data directory: {context.settings.data_dir}"):
        region = Region(ui.element("div").classes("tally-thirds"))

    async def refresh() -> None:
        engines = await dashboard.engines.get()
        region.show(engines, lambda: _show_engines(engines))

    ui.timer(ENGINE_REFRESH_SECONDS, refresh)


def _show_engines(engines: list[EngineStatus]) -> None:
    for engine in engines:
        _engine(engine)


def _engine(engine: EngineStatus) -> None:
    with ui.column().classes("gap-2").props(f"data-engine={engine.key}"):
        with ui.column().classes("gap-0"):
            with ui.row().classes("items-center gap-2 no-wrap"):
                icon, colour = OUTCOME_ICONS[engine.is_healthy]
                ui.icon(icon).classes(colour).props("aria-hidden=true")
                ui.label(engine.name).classes("text-weight-medium")
                ui.label(engine.state).classes(f"tally-small {colour}")
            ui.label(engine.kind).classes("tally-quiet tally-small")
        with ui.element("dl").classes("tally-facts tally-small tally-numbers"):
            for name, value in engine.facts:
                with ui.element("dt").classes("tally-quiet"):
                    ui.label(name)
                with ui.element("dd"):
                    ui.label(value)


def _jobs(context: ConsoleContext) -> None:
    with card("Jobs", about="Scheduled jobs on this instance"):
        table = (
            ui.table(columns=JOB_COLUMNS, rows=[], row_key="name")
            .classes("w-full")
            .props("dense flat wrap-cells")
        )
        table.add_slot("body-cell-name", JOB_CELL)
        table.add_slot("body-cell-outcome", OUTCOME_CELL)

    def refresh() -> None:
        table.rows = [_job_row(context, name) for name in sorted(context.runner.jobs)]
        table.update()

    refresh()
    ui.timer(2.0, refresh)


def _job_row(context: ConsoleContext, name: str) -> dict[str, str]:
    job, run = context.runner.jobs[name], context.runner.last_runs.get(name)
    row = {
        "name": name,
        "description": job.description,
        "outcome": "not run yet",
        "took": "",
        "error": "",
        "at": "",
        "icon": "schedule",
        "colour": "tally-quiet",
    }
    if run is None:
        return row
    if run.outcome is None:
        return row | {"outcome": "running", "icon": "autorenew", "colour": "text-primary"}
    icon, colour = OUTCOME_ICONS[run.outcome in {JobOutcome.SUCCEEDED, JobOutcome.LOCKED_ELSEWHERE}]
    when = format_ago((context.clock.now() - run.started_at).total_seconds())
    outcome = run.outcome.value.replace("_", " ")
    return row | {
        "outcome": f"{outcome}, {when}",
        "took": format_duration(run.seconds),
        "error": run.error or "",
        "at": f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC",
        "icon": icon,
        "colour": colour,
    }
