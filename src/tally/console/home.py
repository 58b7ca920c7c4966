"""The first page: one tile for each backend, its traffic and health, the store, and the jobs with how they went."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from nicegui import ui

from tally.console.desk import Desk
from tally.console.shell import Shell, card
from tally.kit.clock import finish_within

REFRESH_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 2.0
TILES: Final = (
    ("cricket", "Cricket", "sports_cricket", "Live scores, and Live Activities on every Lock Screen"),
    ("collect", "Collect", "view_in_ar", "Workouts unlock the parts of a model, for ever"),
    ("scoreboard", "Scoreboard", "leaderboard", "A leaderboard that moves live and cannot be cheated"),
    ("devices", "Devices", "sensors", "Readings of ten thousand boards, stored once each"),
)
JOB_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Job", "field": "name", "align": "left"},
    {"name": "what", "label": "Does", "field": "what", "align": "left"},
    {"name": "ended", "label": "Last run", "field": "ended", "align": "left"},
    {"name": "took", "label": "Took", "field": "took", "align": "right"},
    {"name": "outcome", "label": "Outcome", "field": "outcome", "align": "left"},
    {"name": "error", "label": "Error", "field": "error", "align": "left"},
]


def put_home(shell: Shell, desk: Desk) -> None:
    @shell.page("/", "Home")
    def home() -> None:
        with ui.grid(columns="repeat(auto-fit, minmax(270px, 1fr))").classes("w-full gap-4"):
            for name, title, sign, sentence in TILES:
                _tile(desk, name, title, sign, sentence)
        with ui.grid(columns="repeat(auto-fit, minmax(420px, 1fr))").classes("w-full gap-4 q-mt-md"):
            _health(desk)
            _traffic(desk)
        _jobs(desk)


def _tile(desk: Desk, name: str, title: str, sign: str, sentence: str) -> None:
    runs_here = name in desk.backends
    with ui.card().classes("tally-card cursor-pointer").props(f"data-tile={name} tabindex=0 role=link") as tile:
        tile.on("click", lambda: ui.navigate.to(f"/{name}"))
        tile.on("keydown.enter", lambda: ui.navigate.to(f"/{name}"))
        with ui.row().classes("items-center gap-2"):
            ui.icon(sign, size="md").classes("text-primary").props("aria-hidden=true")
            ui.label(title).classes("text-h6").props("role=heading aria-level=2")
        ui.label(sentence).classes("tally-quiet")
        if not runs_here:
            ui.label("Not started here").classes("text-negative")
            return
        rate = ui.label().classes("tally-figure")
        detail = ui.label().classes("tally-quiet")

    def refresh() -> None:
        now = desk.figures.latest(name)
        rate.set_text(f"{now.requests:.0f} requests/s")
        failures = f", {now.failures:.1f} failures/s" if now.failures else ""
        detail.set_text(f"{now.mean_ms:.1f} ms on average{failures}")

    refresh()
    ui.timer(REFRESH_SECONDS, refresh)


def _health(desk: Desk) -> None:
    with card("Health and store"):
        rows = ui.column().classes("gap-1 w-full")
        store = ui.label().classes("tally-quiet")

    async def refresh() -> None:
        found = [(probe.name, await _works(desk, probe.check)) for probe in desk.probes]
        calls = sum(row.calls for row in desk.patterns())
        store.set_text(f"{calls:,} accesses to the store since the start; data in {desk.settings.data_dir}")
        rows.clear()
        with rows:
            for name, works in found:
                with ui.row().classes("items-center gap-2").props(f"data-probe={name}"):
                    ui.icon("check_circle" if works else "error").classes("text-positive" if works else "text-negative")
                    ui.label(f"{name}: {'works' if works else 'does not work'}")

    ui.timer(0.1, refresh, once=True)
    ui.timer(5.0, refresh)


async def _works(desk: Desk, check: Callable[[], Awaitable[object]]) -> bool:
    try:
        await finish_within(desk.clock, PROBE_SECONDS, check())
    except Exception:  # noqa: BLE001  (whatever it is, it does not work)
        return False
    return True


def _traffic(desk: Desk) -> None:
    names = [name for name, *_ in TILES if name in desk.backends]
    with card("Requests a second"):
        chart = ui.echart(_chart(names)).classes("w-full h-56").props("aria-label='Requests a second, by backend'")

    def refresh() -> None:
        moments = [f"{int(moment) % 3600 // 60:02d}:{int(moment) % 60:02d}" for moment in desk.figures.moments]
        chart.options["xAxis"]["data"] = moments
        for series in chart.options["series"]:
            kept = [round(each.requests, 1) for each in desk.figures.traffic[series["name"]]]
            series["data"] = [0.0] * (len(moments) - len(kept)) + kept
        chart.update()

    refresh()
    ui.timer(2.0, refresh)


def _chart(names: list[str]) -> dict[str, Any]:
    return {
        "animation": False,
        "grid": {"left": 45, "right": 10, "top": 30, "bottom": 25},
        "legend": {"top": 0},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "category", "data": []},
        "yAxis": {"type": "value", "min": 0},
        "series": [{"name": name, "type": "line", "showSymbol": False, "data": []} for name in names],
    }


def _jobs(desk: Desk) -> None:
    with card("Jobs", classes="q-mt-md"):
        table = ui.table(columns=JOB_COLUMNS, rows=[], row_key="name").classes("w-full").props("dense flat")

    def refresh() -> None:
        table.rows = [_job_row(desk, name) for name in sorted(desk.runner.jobs)]
        table.update()

    refresh()
    ui.timer(2.0, refresh)


def _job_row(desk: Desk, name: str) -> dict[str, str]:
    job, run = desk.runner.jobs[name], desk.runner.last_runs.get(name)
    row = {"name": name, "what": job.what, "ended": "not yet", "took": "", "outcome": "", "error": ""}
    if run is None:
        return row
    if run.outcome is None:
        return row | {"ended": "now", "outcome": "running"}
    ended = f"{run.started_at:%H:%M:%S}"
    return row | {"ended": ended, "took": f"{run.seconds * 1000:.0f} ms", "outcome": run.outcome.value, "error": run.error or ""}
