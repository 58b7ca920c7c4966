"""`tally devices rollup`: the roll-ups of readings from which charts are computed."""

import asyncio
from typing import Annotated

import typer

from tally.app import open_application
from tally.cli.startup import explained_errors, load_settings, local_user
from tally.devices.repository.rollups import ALL_BUILT, NONE_BUILT, ConsumerState, RollupRepository

devices_commands = typer.Typer(no_args_is_help=True)


@devices_commands.callback()
def devices_options() -> None:
    """Administer the devices backend."""


@devices_commands.command("rollup")
def show_rollups(
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Compute all roll-ups again whose readings have not expired."
        ),
    ] = False,
) -> None:
    """Print whether the roll-ups are complete. A running server builds them in the background."""

    async def run() -> ConsumerState | None:
        async with open_application(load_settings(backends=["devices"])) as application:
            rollups = RollupRepository(application.store)
            if rebuild:
                async with application.operators.recording(local_user(), "devices rollup", ""):
                    await rollups.request_rebuild()
            return await rollups.state()

    with explained_errors():
        state = asyncio.run(run())
    if state is None or state.built_until == NONE_BUILT:
        typer.echo("Roll-ups will be built by the running server.")
    elif state.built_until == ALL_BUILT:
        typer.echo("Roll-ups are complete.")
    else:
        typer.echo(f"Roll-ups are built up to device {state.built_until.partition('#')[0]}.")
