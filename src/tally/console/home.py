"""The first page: a tile for each backend that is alive, the traffic, what keeps the data, and the jobs with how they went."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from nicegui import ui

from tally.console.charts import CLOCK, line, line_chart
from tally.console.context import ConsoleContext
from tally.console.dashboard import ENGINE_SECONDS, REFRESH_SECONDS, BackendHealth, Dashboard
from tally.console.engines import EngineStatus
from tally.console.formatting import format_ago, format_duration
from tally.console.shell import Region, Shell, card
from tally.console.tiles import MARKS, TILES, BackendTile, absent_tile
from tally.kit.jobs import JobOutcome

ABOUT: Final = (
    "Scores, workouts, games and sensors, as they happen. Every tile leads to a page with more."
)
DEMO: Final = "A demo: made-up people use simulated services, and everything you see really went through the backends."
# Samples, which is seconds.
CALM: Final = 10
JOB_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Job", "field": "name", "align": "left"},
    {"name": "outcome", "label": "Last run", "field": "outcome", "align": "left"},
    {"name": "took", "label": "Took", "field": "took", "align": "right"},
]
# The name of a job with what it does below; and how it went, told by a sign as well as by words,
# with the error below.
JOB_CELL: Final = """
<q-td :props="props"><div>{{ props.row.name }}</div><div class="tally-quiet tally-small">{{ props.row.what }}</div></q-td>
"""
OUTCOME_CELL: Final = """
<q-td :props="props"><div class="row no-wrap items-center" style="gap: .4rem">
<q-icon :name="props.row.sign" :class="props.row.colour" size="xs" aria-hidden="true" /><span>{{ props.row.outcome }}</span></div>
<div v-if="props.row.error" class="text-negative tally-small">{{ props.row.error }}</div></q-td>
"""
SIGNS: Final = {True: MARKS[BackendHealth.HEALTHY], False: MARKS[BackendHealth.FAILING]}


def add_home_pages(shell: Shell, context: ConsoleContext, dashboard: Dashboard) -> None:
    @shell.page("/", "Home", ABOUT)
    def home() -> None:
        if context.outside is not None and context.outside.places:
            with ui.row().classes("items-center gap-2 no-wrap tally-quiet tally-small"):
                ui.icon("theater_comedy").props("aria-hidden=true")
                ui.label(DEMO)
        _tiles(context, dashboard)
        with ui.element("div").classes("tally-halves"):
            _traffic(context)
            _engines(context, dashboard)
        _jobs(context)


def _tiles(context: ConsoleContext, dashboard: Dashboard) -> None:
    tiles: dict[str, BackendTile] = {}
    with ui.element("div").classes("tally-tiles"):
        for kind in TILES:
            if kind.name in context.backends:
                tiles[kind.name] = BackendTile(kind)
            else:
                absent_tile(kind)

    async def refresh() -> None:
        found = await dashboard.tiles.get()
        for name, tile in tiles.items():
            tile.show(found[name], context.traffic.latest(name))

    ui.timer(REFRESH_SECONDS, refresh)


def _traffic(context: ConsoleContext) -> None:
    names = [kind.name for kind in TILES if kind.name in context.backends]
    with card(
        "Requests a second",
        about="What each backend answered over the last three minutes, as the mean of ten seconds",
    ):
        axis = {"type": "time", "axisLabel": {"formatter": CLOCK}}
        chart = (
            ui.echart(line_chart(x=axis))
            .classes("w-full h-64")
            .props("aria-label='Requests a second, by backend'")
        )

    def refresh() -> None:
        moments = [round(moment * 1000) for moment in context.traffic.moments]
        chart.options["series"] = []
        for name in names:
            kept = _calmed([each.requests for each in context.traffic.traffic[name]])
            # Before its first request there is nothing of a backend, which is to say 0.
            points = list(zip(moments, [0.0] * (len(moments) - len(kept)) + kept, strict=True))
            # The first ones are means of too few to be calm: left out once there are others.
            chart.options["series"].append(
                line(name.capitalize(), points[CALM - 1 :] if len(points) > 2 * CALM else points)
            )
        chart.update()

    ui.timer(2.0, refresh)


def _calmed(values: Sequence[float]) -> list[float]:
    """Each with the mean of those before it, since requests come in bursts."""
    return [round(fmean(values[max(0, end - CALM) : end]), 1) for end in range(1, len(values) + 1)]


def _engines(context: ConsoleContext, dashboard: Dashboard) -> None:
    with card("Store and databases", about=f"Data directory: {context.settings.data_dir}"):
        place = Region(ui.element("div").classes("tally-thirds"))

    async def refresh() -> None:
        found = await dashboard.engines.get()
        place.show(found, lambda: _put_engines(found))

    ui.timer(ENGINE_SECONDS, refresh)


def _put_engines(engines: list[EngineStatus]) -> None:
    for engine in engines:
        _engine(engine)


def _engine(engine: EngineStatus) -> None:
    with ui.column().classes("gap-2").props(f"data-engine={engine.key}"):
        with ui.column().classes("gap-0"):
            with ui.row().classes("items-center gap-2 no-wrap"):
                sign, colour = SIGNS[engine.is_well]
                ui.icon(sign).classes(colour).props("aria-hidden=true")
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
    with card("Jobs", about="What time starts, on this instance"):
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
        "what": job.description,
        "outcome": "not yet",
        "took": "",
        "error": "",
        "sign": "schedule",
        "colour": "tally-quiet",
    }
    if run is None:
        return row
    if run.outcome is None:
        return row | {"outcome": "runs now", "sign": "autorenew", "colour": "text-primary"}
    sign, colour = SIGNS[run.outcome in {JobOutcome.SUCCEEDED, JobOutcome.LOCKED_ELSEWHERE}]
    when = format_ago((context.clock.now() - run.started_at).total_seconds())
    told = run.outcome.value.replace("_", " ")
    return row | {
        "outcome": f"{told}, {when}",
        "took": format_duration(run.seconds),
        "error": run.error or "",
        "sign": sign,
        "colour": colour,
    }
