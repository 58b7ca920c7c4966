"""`tally job list` and `tally job run`: the scheduled jobs."""

import asyncio
from typing import Annotated

import msgspec
import typer

from tally.app import JOB_SCHEDULES, open_application
from tally.cli.startup import AsJson, explained_errors, load_settings, local_user
from tally.kit.jobs import JobOutcome, JobRun

job_commands = typer.Typer(no_args_is_help=True)


@job_commands.command("list")
def list_jobs(as_json: AsJson = False) -> None:
    """Print the jobs of all backends and their intervals; opens and changes nothing."""
    schedules = [(backend, entry) for backend, jobs in JOB_SCHEDULES.items() for entry in jobs]
    if as_json:
        fields = ("name", "description", "interval", "lock_seconds", "deadline")
        rows = [
            {"backend": backend} | {field: getattr(entry, field) for field in fields}
            for backend, entry in schedules
        ]
        typer.echo(msgspec.json.encode(rows))
        return
    for _, entry in schedules:
        typer.echo(f"{entry.name}  every {entry.interval:g} s  {entry.description}")


@job_commands.command("run")
def run_job(
    name: Annotated[str, typer.Argument(help="Name of the job, see `tally job list`.")],
) -> None:
    """Run a job once, now. Other instances may be running."""

    async def run() -> JobRun:
        async with open_application(load_settings()) as application:
            async with application.operators.recording(local_user(), "job run", name) as change:
                result = await application.job_runner().run(name)
                if result.outcome is not JobOutcome.SUCCEEDED:
                    change.error = f"job_{result.outcome}"
            return result

    with explained_errors():
        result = asyncio.run(run())
    error = f": {result.error}" if result.error else ""
    typer.echo(f"{name} {result.outcome} in {result.seconds:.3f} s{error}")
    if result.outcome is not JobOutcome.SUCCEEDED:
        raise typer.Exit(1)
