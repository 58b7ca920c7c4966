"""`tally move`: moves the tables between the embedded store and DynamoDB while servers run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import typer

from tally.app import CATALOGUE
from tally.cli.move_progress import describe_move, shown_progress
from tally.cli.startup import AsJson, explained_errors, load_settings
from tally.kit.clock import Clock, SystemClock
from tally.kit.data_directory import secure_data_directory
from tally.kit.server import run_until_stopped
from tally.kit.tasks import cancel_all
from tally.move.comparison import TableComparison
from tally.move.errors import MoveFailed
from tally.move.mover import Mover
from tally.move.moves import (
    abandon_dynamodb,
    finish_move,
    is_moving,
    moved_tables,
    moving_process,
    start_move,
    verify_move,
)
from tally.move.pace import Pace
from tally.move.sides import Sides, open_sides
from tally.move.state import (
    MoveState,
    SideName,
    load_state,
    other_side,
    request_switch,
    requested_side,
)
from tally.settings import Settings
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.sqlite.files import FILE_NAME

move_commands = typer.Typer(no_args_is_help=True)

NO_MOVE: Final = "No move is in progress; start one with `tally move start`"
POLL_SECONDS: Final = 0.5

Target = Annotated[
    Literal["dynamodb", "embedded"],
    typer.Option("--to", help="Where to move: from the other of the two stores."),
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", min=1, help="Items to copy per second; default as fast as possible."),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace the items that the target's tables already have."),
]


Abandon = Annotated[
    bool,
    typer.Option(
        "--abandon-dynamodb",
        help="Use the embedded store as it is, without the changes that only DynamoDB has.",
    ),
]


@move_commands.command("start")
def start(to: Target, rate: Rate = None, overwrite: Overwrite = False) -> None:
    """Start or resume a move: copy all items, then follow changes until stopped.

    Servers keep running. Stop it with Ctrl-C and start it again at any time.
    """
    settings, clock = _prepare(), SystemClock()
    tables = moved_tables(CATALOGUE.tables())

    async def move(stop: asyncio.Event) -> None:
        async with open_sides(settings, clock) as sides:
            state = await start_move(sides, tables, to, clock, overwrite=overwrite)
            await _run(sides, state, Pace(clock, rate), stop)

    with explained_errors():
        if to == "dynamodb" and not (settings.data_dir / FILE_NAME).exists():
            raise MoveFailed(f"TALLY_DATA_DIR: {settings.data_dir} has no embedded store to move")
        with moving_process(settings.data_dir):
            run_until_stopped(move)


@move_commands.command("status")
def status(as_json: AsJson = False) -> None:
    """Show what is copied, which store is active, and whether a process moves the data."""
    settings = _prepare()

    async def show() -> None:
        state = requested = None
        if (settings.data_dir / FILE_NAME).exists():
            async with open_sqlite(settings.data_dir) as engine:
                state = await load_state(engine)
                requested = await requested_side(engine)
        if state is None:
            typer.echo("null" if as_json else NO_MOVE)
        elif as_json:
            typer.echo(msgspec.json.encode(state).decode())
        else:
            for line in describe_move(state, requested, is_moving=is_moving(settings.data_dir)):
                typer.echo(line)

    with explained_errors():
        asyncio.run(show())


@move_commands.command("verify")
def verify() -> None:
    """Compare counts and checksums of both stores per partition; exit with 1 if they differ."""
    settings, clock = _prepare(), SystemClock()
    tables = moved_tables(CATALOGUE.tables())

    async def compare() -> int:
        differing = 0
        async with open_sides(settings, clock) as sides:
            state = await _current(sides.embedded.engine)
            async for comparison in verify_move(sides, state, tables, clock):
                differing += bool(comparison.differences)
                _report(comparison)
        return differing

    with explained_errors():
        differing = asyncio.run(compare())
    if differing:
        typer.echo(f"{differing} tables differ.", err=True)
        raise typer.Exit(1)
    typer.echo(f"All {len(tables)} tables are equal.")


@move_commands.command("switch")
def switch() -> None:
    """Make the target the active store: pause writes, apply the last changes, exchange the roles.

    Then restart the servers on the target. The source follows the target, so `back` is possible.
    """
    _request(lambda state: other_side(state.origin))


@move_commands.command("back")
def back() -> None:
    """Make the source the active store again, with everything that was written since the switch."""
    _request(lambda state: state.origin)


@move_commands.command("finish")
def finish(abandon: Abandon = False) -> None:
    """End the move: the active store stays in use, and the other one no longer follows it."""
    settings, clock = _prepare(), SystemClock()
    tables = moved_tables(CATALOGUE.tables())

    async def end() -> SideName:
        async with open_sides(settings, clock) as sides:
            if abandon:
                await abandon_dynamodb(sides.embedded, tables)
                return "embedded"
            state = await _current(sides.embedded.engine)
            await finish_move(sides, state, tables)
            return state.active

    with explained_errors(), moving_process(settings.data_dir):
        active = asyncio.run(end())
    typer.echo(f"Finished. The servers use TALLY_STORE_ENGINE={engine_setting(active)}.")


def engine_setting(side: SideName) -> str:
    """Return the value of TALLY_STORE_ENGINE for a store."""
    return "dynamodb" if side == "dynamodb" else "sqlite"


def _prepare() -> Settings:
    settings = load_settings()
    with explained_errors():
        secure_data_directory(settings.data_dir)
    return settings


def _request(choose: Callable[[MoveState], SideName]) -> None:
    """Switch in the moving process, or in this one if there is none."""
    settings, clock = _prepare(), SystemClock()

    async def request() -> SideName | None:
        async with _open_embedded(settings) as engine:
            state = await _current(engine)
            to = choose(state)
            if state.active == to:
                raise MoveFailed(f"The {to} store is active already")
            await request_switch(engine, to)
            if is_moving(settings.data_dir):
                typer.echo("Requested. The moving process compares both stores first, and waits.")
                await _wait_for_switch(engine, to, settings.data_dir, clock)
                return None
            return to

    async def move(stop: asyncio.Event) -> None:
        async with open_sides(settings, clock) as sides:
            state = await _current(sides.embedded.engine)
            await _run(sides, state, Pace(clock, None), stop)

    with explained_errors():
        to = asyncio.run(request())
        if to is not None:
            with moving_process(settings.data_dir):
                run_until_stopped(move)


async def _wait_for_switch(
    engine: SqliteEngine, to: SideName, data_dir: Path, clock: Clock
) -> None:
    while is_moving(data_dir):
        state = await _current(engine)
        if state.active == to:
            typer.echo(f"Restart the servers with TALLY_STORE_ENGINE={engine_setting(to)}.")
            return
        if state.failure and await requested_side(engine) is None:
            raise MoveFailed(state.failure)
        await clock.sleep(POLL_SECONDS)
    raise MoveFailed("The moving process ended; run the command again")


async def _run(sides: Sides, state: MoveState, pace: Pace, stop: asyncio.Event) -> None:
    """Move until stopped, and show the progress."""
    mover = Mover(sides, state, moved_tables(CATALOGUE.tables()), pace)
    shown = asyncio.create_task(shown_progress(mover, pace.clock, engine_setting))
    try:
        await mover.run(stop)
    finally:
        await cancel_all({shown})


async def _current(engine: SqliteEngine) -> MoveState:
    state = await load_state(engine)
    if state is None:
        raise MoveFailed(NO_MOVE)
    return state


@asynccontextmanager
async def _open_embedded(settings: Settings) -> AsyncIterator[SqliteEngine]:
    if not (settings.data_dir / FILE_NAME).exists():
        raise MoveFailed(NO_MOVE)
    async with open_sqlite(settings.data_dir) as engine:
        yield engine


def _report(comparison: TableComparison) -> None:
    typer.echo(
        f"{comparison.table}: {comparison.active.items:,} items in {comparison.partitions:,}"
        f" partitions, checksum {comparison.active}"
    )
    for difference in comparison.differences:
        typer.echo(f"  {difference.kind}: {dict(difference.key)}")
