"""Shows a move: a progress bar on a terminal, lines elsewhere, and the text of its status."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tally.kit.clock import Clock
from tally.move.mover import Mover
from tally.move.state import MoveState, SideName

REFRESH_SECONDS: Final = 0.25
LINE_SECONDS: Final = 10.0


async def shown_progress(
    mover: Mover, clock: Clock, engine_setting: Callable[[SideName], str]
) -> None:
    """Show the progress until cancelled."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[applied]:,} changes, {task.fields[lag]:.1f} s behind"),
    )
    is_terminal = sys.stderr.isatty()
    active, printed_at, failure = mover.state.active, float("-inf"), mover.state.failure
    with Progress(*columns, disable=not is_terminal) as progress:
        task = progress.add_task("", total=None, applied=0, lag=0.0)
        while True:
            copied, expected, applied = totals(mover.state)
            progress.update(
                task,
                description=mover.activity,
                completed=copied,
                total=max(copied, expected),
                applied=applied,
                lag=mover.lag_seconds,
            )
            state = mover.state
            if state.active != active and mover.pause_seconds is not None:
                active = state.active
                typer.echo(
                    f"Switched to {active} after a write pause of {mover.pause_seconds:.1f} s."
                    f" Restart the servers with TALLY_STORE_ENGINE={engine_setting(active)}."
                )
            if state.failure != failure:
                failure = state.failure
                if failure:
                    typer.echo(f"Not switched: {failure}", err=True)
            if not is_terminal and clock.monotonic() - printed_at > LINE_SECONDS:
                printed_at = clock.monotonic()
                typer.echo(
                    f"{mover.activity}: {copied:,} of {expected:,} items copied,"
                    f" {applied:,} changes applied, {mover.lag_seconds:.1f} s behind"
                )
            await clock.sleep(REFRESH_SECONDS)


def totals(state: MoveState) -> tuple[int, int, int]:
    """Return the copied and expected items and the applied changes of all tables."""
    tables = state.tables.values()
    return (
        sum(table.copied for table in tables),
        sum(max(table.copied, table.expected) for table in tables),
        sum(table.applied for table in tables),
    )


def describe_move(
    state: MoveState, requested: SideName | None, *, is_moving: bool
) -> Iterator[str]:
    """Describe the move line by line."""
    copied, expected, applied = totals(state)
    saved = datetime.fromtimestamp(state.saved_at / 1000, UTC).isoformat(timespec="seconds")
    yield f"Active store: {state.active}; {state.passive} follows it"
    yield "A process moves the data" if is_moving else "No process moves the data: start it again"
    yield f"State saved at {saved}"
    if state.is_copied:
        yield f"All {len(state.tables)} tables are copied; {applied:,} changes applied"
    else:
        yield f"Copied {copied:,} of about {expected:,} items; {applied:,} changes applied"
    if requested is not None:
        yield f"Requested: switch to {requested}"
    if state.is_switching:
        yield "A switch is in progress; writes may be paused"
    if state.failure:
        yield f"Last failure: {state.failure}"
    for name, table in sorted(state.tables.items()):
        if not table.is_copied:
            yield f"  {name}: {table.copied:,} of about {table.expected:,} items"
