"""`tally sim apns`: Apple's push service by itself, for a server and for phones that run elsewhere on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tally.kit.clock import SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.settings import Settings
from tally.sim.apns.certificates import AUTHORITY_FILE
from tally.sim.apns.simulator import BUNDLE_ID, KEY_FILE, ApnsSimulator

PUSH_PORT, MANAGE_PORT, CONTROL_PORT = 8121, 8122, 8123
SETTINGS_FILE = "apns.env"

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")]


def apns(
    *,
    keep: Annotated[
        Path,
        typer.Option(
            help="Where its key and its certificates are kept, and settings that lead here."
        ),
    ] = Path("data/apns"),
    port: Port = PUSH_PORT,
    manage_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for channels.")
    ] = MANAGE_PORT,
    control_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for phones and faults.")
    ] = CONTROL_PORT,
    any_token: Annotated[
        bool, typer.Option("--any-token", help="Take pushes for tokens that it never issued.")
    ] = False,
    sums_only: Annotated[
        bool, typer.Option("--sums-only", help="Keep no log of requests, which is for load.")
    ] = False,
) -> None:
    """Simulate Apple's push service: pushes, channels, faults, and deliveries to virtual phones."""
    simulator = ApnsSimulator.load(keep, SystemClock(), BUNDLE_ID)
    simulator.devices.takes_any_token = any_token
    simulator.record.remembers = not sums_only

    async def run(stop: asyncio.Event) -> None:
        async with simulator.serving(port=port, manage_port=manage_port, control_port=control_port):
            settings = write_settings(simulator, keep)
            typer.echo(
                f"Apple's push service is simulated at {simulator.url}, for phones at {simulator.control_url}."
            )
            typer.echo(f"{settings} has the settings that lead a server here; Ctrl-C stops it.")
            await stop.wait()

    try:
        run_until_stopped(run)
    except ListenError as error:
        typer.echo(
            f"{error}. Choose others with --port, --manage-port and --control-port.", err=True
        )
        raise typer.Exit(2) from error


def write_settings(simulator: ApnsSimulator, directory: Path) -> Path:
    """A file of environment variables that lead a server to the simulator."""
    here = simulator.pointed_here(Settings(), directory / AUTHORITY_FILE)
    values = {
        "URL": here.cricket_apns_url,
        "MANAGE_URL": here.cricket_apns_manage_url,
        "BUNDLE_ID": here.cricket_apns_bundle_id,
        "TEAM_ID": here.cricket_apns_team_id,
        "KEY_ID": here.cricket_apns_key_id,
        "KEY": (directory / KEY_FILE).resolve(),
        "AUTHORITY": (directory / AUTHORITY_FILE).resolve(),
    }
    path = directory / SETTINGS_FILE
    path.write_text(
        "".join(f"TALLY_CRICKET_APNS_{name}={value}\n" for name, value in values.items())
    )
    return path
