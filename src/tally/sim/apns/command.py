"""`tally sim apns`: runs the APNs simulator for a server on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tally.kit.clock import SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.settings import Settings
from tally.sim.apns.certificates import AUTHORITY_FILE
from tally.sim.apns.simulator import BUNDLE_ID, KEY_FILE, ApnsSimulator
from tally.sim.command_line import (
    APNS_CONTROL_PORT,
    APNS_MANAGE_PORT,
    APNS_PUSH_PORT,
    ListenPort,
)

SETTINGS_FILE = "apns.env"


def apns(
    *,
    keep: Annotated[
        Path,
        typer.Option(help="Directory for the key, the certificates and the settings file."),
    ] = Path("data/apns"),
    port: ListenPort = APNS_PUSH_PORT,
    manage_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for channel management.")
    ] = APNS_MANAGE_PORT,
    control_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for the control API.")
    ] = APNS_CONTROL_PORT,
    any_token: Annotated[
        bool, typer.Option("--any-token", help="Accept pushes to unknown tokens.")
    ] = False,
    sums_only: Annotated[
        bool,
        typer.Option("--sums-only", help="Count requests without logging them, for load tests."),
    ] = False,
) -> None:
    """Simulate APNs: pushes, broadcast channels, faults and deliveries to virtual phones."""
    simulator = ApnsSimulator.load(keep, SystemClock(), BUNDLE_ID)
    simulator.devices.accepts_any_token = any_token
    simulator.log.is_recording = not sums_only

    async def run(stop: asyncio.Event) -> None:
        async with simulator.serving(port=port, manage_port=manage_port, control_port=control_port):
            settings = write_settings(simulator, keep)
            typer.echo(
                f"APNs is simulated at {simulator.url}; control API at {simulator.control_url}."
            )
            typer.echo(f"Load {settings} to configure a server; Ctrl-C stops the simulator.")
            await stop.wait()

    try:
        run_until_stopped(run)
    except ListenError as error:
        typer.echo(
            f"{error}. Choose others with --port, --manage-port and --control-port.", err=True
        )
        raise typer.Exit(2) from error


def write_settings(simulator: ApnsSimulator, directory: Path) -> Path:
    """Write the environment variables that configure a server for this simulator."""
    configured = simulator.configure(Settings(), directory / AUTHORITY_FILE)
    values = {
        "URL": configured.cricket_apns_url,
        "MANAGE_URL": configured.cricket_apns_manage_url,
        "BUNDLE_ID": configured.cricket_apns_bundle_id,
        "TEAM_ID": configured.cricket_apns_team_id,
        "KEY_ID": configured.cricket_apns_key_id,
        "KEY": (directory / KEY_FILE).resolve(),
        "AUTHORITY": (directory / AUTHORITY_FILE).resolve(),
    }
    path = directory / SETTINGS_FILE
    path.write_text(
        "".join(f"TALLY_CRICKET_APNS_{name}={value}\n" for name, value in values.items())
    )
    return path
