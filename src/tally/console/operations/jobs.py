"""The pages of the scheduled jobs: all jobs, and one job with its history and its controls."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from nicegui import ui

from tally.console.access import page_session
from tally.console.context import ConsoleContext
from tally.console.formatting import format_duration, format_span
from tally.console.operations.elements import TIME_CELL, relative_link_cell, show_time, time_text
from tally.console.shell import Shell, card, empty_state, heading
from tally.errors import Conflict
from tally.instance.repository.job_pauses import JobPause
from tally.kit.jobs import JobOutcome, JobRun
from tally.kit.masking import mask_text

REFRESH_SECONDS: Final = 2.0
ABOUT: Final = (
    "Scheduled jobs. Runs and times are those of this instance; a pause holds for all instances."
)
JOB_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "name", "label": "Job", "field": "name", "align": "left", "sortable": True},
    {"name": "description", "label": "Description", "field": "description", "align": "left"},
    {"name": "interval", "label": "Interval", "field": "interval", "align": "right"},
    {"name": "outcome", "label": "Last run", "field": "outcome", "align": "left"},
    {"name": "next", "label": "Next run", "field": "next", "align": "left", "sortable": True},
    {"name": "error", "label": "Error", "field": "error", "align": "left"},
]
RUN_COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "started", "label": "Started", "field": "started", "align": "left"},
    {"name": "outcome", "label": "Outcome", "field": "outcome", "align": "left"},
    {"name": "took", "label": "Took", "field": "took", "align": "right"},
    {"name": "error", "label": "Error", "field": "error", "align": "left"},
]


def add_job_pages(shell: Shell, context: ConsoleContext) -> None:
    @shell.page("/operations/jobs", "Jobs", ABOUT)
    def jobs() -> None:
        with card("All jobs"):
            table = (
                ui.table(columns=JOB_COLUMNS, rows=[], row_key="name")
                .classes("w-full")
                .props("dense flat wrap-cells")
            )
            table.add_slot("body-cell-name", relative_link_cell("jobs/"))

        async def refresh() -> None:
            paused = await context.administration.job_pauses.all()
            rows = [_job_row(context, name, paused) for name in sorted(context.runner.jobs)]
            if rows != table.rows:
                table.rows = rows
                table.update()

        ui.timer(REFRESH_SECONDS, refresh)

    @shell.page("/operations/jobs/{name}", "Job", is_headed=False)
    async def job(name: str) -> None:
        if name not in context.runner.jobs:
            heading("Job")
            empty_state(f"This instance has no job {name}.")
            return
        heading(name, context.runner.jobs[name].description)
        view = JobView(context, name)
        view.show()
        await view.refresh()
        ui.timer(REFRESH_SECONDS, view.refresh, immediate=False)


def _job_row(context: ConsoleContext, name: str, paused: Mapping[str, JobPause]) -> dict[str, Any]:
    job, run = context.runner.jobs[name], context.runner.last_runs.get(name)
    next_run = "paused" if name in paused else time_text(context.runner.next_runs.get(name))
    return {
        "name": name,
        "description": job.description,
        "interval": format_span(job.interval) if job.interval >= 1 else f"{job.interval:g} s",
        "outcome": "not run yet" if run is None else _outcome(run),
        "next": next_run,
        "error": _error(run),
    }


def _outcome(run: JobRun) -> str:
    return "running" if run.outcome is None else run.outcome.value.replace("_", " ")


def _error(run: JobRun | None) -> str:
    return "" if run is None or run.error is None else mask_text(run.error)


class JobView:
    """The page of one job, for one visitor."""

    def __init__(self, context: ConsoleContext, name: str) -> None:
        self._context = context
        self._runner = context.runner
        self._name = name

    def show(self) -> None:
        with card("State"):
            self._state = ui.label().props("role=status data-state=1")
            self._next = ui.row().classes("tally-quiet")
            self._error = ui.label().classes("text-negative").style("overflow-wrap: anywhere")
            with ui.row().classes("gap-3"):
                run = ui.button("Run now", icon="play_arrow")
                self._pause = ui.button("Pause").props("flat")
                self._resume = ui.button("Resume").props("flat")
        changes = self._context.changes
        changes.control(run, self._run_now)
        changes.control(self._pause, self._pause_job)
        changes.control(self._resume, self._resume_job)
        with card("History", about="The latest runs on this instance, newest first."):
            self._history = (
                ui.table(columns=RUN_COLUMNS, rows=[], row_key="id", pagination=25)
                .classes("w-full")
                .props("dense flat wrap-cells no-data-label='Not run yet on this instance.'")
            )
            self._history.add_slot("body-cell-started", TIME_CELL)

    async def refresh(self) -> None:
        pause = (await self._context.administration.job_pauses.all()).get(self._name)
        run = self._runner.last_runs.get(self._name)
        self._state.set_text(_describe(run, pause))
        self._show_next(None if pause else self._runner.next_runs.get(self._name))
        self._error.set_text(_error(run))
        self._pause.set_visibility(pause is None)
        self._resume.set_visibility(pause is not None)
        rows = [
            {
                "id": number,
                "started": time_text(past.started_at),
                "outcome": _outcome(past),
                "took": format_duration(past.seconds),
                "error": _error(past),
            }
            for number, past in enumerate(reversed(self._runner.history[self._name]))
        ]
        if rows != self._history.rows:
            self._history.rows = rows
            self._history.update()

    def _show_next(self, at: datetime | None) -> None:
        self._next.clear()
        with self._next:
            ui.label("Next run:")
            show_time(at, never="none")

    async def _run_now(self) -> None:
        if self._runner.is_running(self._name):
            raise Conflict("The job is running already")
        async with self._context.changes.audited("job_run", self._name) as change:
            run = await self._runner.run(self._name)
            if run.outcome is not JobOutcome.SUCCEEDED:
                change.error = f"job_{run.outcome}"
        await self.refresh()

    async def _pause_job(self) -> None:
        async with self._context.changes.audited("job_pause", self._name):
            await self._context.administration.job_pauses.pause(self._name, page_session().operator)
        await self.refresh()

    async def _resume_job(self) -> None:
        async with self._context.changes.audited("job_resume", self._name):
            await self._context.administration.job_pauses.resume(self._name)
        await self.refresh()


def _describe(run: JobRun | None, pause: JobPause | None) -> str:
    last = "Not run yet on this instance" if run is None else f"Last run: {_outcome(run)}"
    if pause is None:
        return f"{last}."
    return f"Paused by {pause.operator} at {pause.paused_at}. {last}."
