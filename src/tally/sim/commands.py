"""`tally sim`: registers the simulator commands and defines `strava` and `oidc`."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import typer

from tally.kit.clock import SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.sim.apns.command import apns
from tally.sim.athletes.command import athletes
from tally.sim.boards.command import boards
from tally.sim.command_line import OIDC_PORT, STRAVA_PORT, ListenPort
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.phones.command import phones
from tally.sim.players.command import players
from tally.sim.sportmonks.command import cricket
from tally.sim.strava.rate_limits import UNLIMITED, RateLimits
from tally.sim.strava.simulator import StravaSimulator
from tally.sim.strava.snapshot import dump_snapshot, load_snapshot


class Simulator(Protocol):
    """A simulator that listens on one port."""

    url: str

    def serving(
        self, host: str = "127.0.0.1", port: int = 0
    ) -> AbstractAsyncContextManager[object]: ...


def strava(
    *,
    port: ListenPort = STRAVA_PORT,
    state: Annotated[
        Path | None,
        typer.Option(help="State file: loaded at start-up, written at shutdown."),
    ] = None,
    unlimited: Annotated[
        bool, typer.Option("--unlimited", help="Disable Strava's rate limits.")
    ] = False,
) -> None:
    """Simulate Strava: consent, tokens, activities, rate limits and webhooks."""
    clock = SystemClock()
    limits = RateLimits(clock, UNLIMITED, UNLIMITED) if unlimited else RateLimits(clock)
    simulator = StravaSimulator(clock, limits=limits)
    if state is not None and state.exists():
        _load_state(simulator, state)
    _serve(simulator, port, "Strava")
    if state is not None:
        state.write_bytes(dump_snapshot(simulator))


def oidc(
    *,
    port: ListenPort = OIDC_PORT,
    approve: Annotated[
        str | None, typer.Option(help="Log every visitor in as this user, without a login page.")
    ] = None,
) -> None:
    """Simulate an OpenID Connect issuer that behaves like Amazon Cognito."""
    simulator = OidcSimulator(SystemClock(), auto_approve=approve)
    _serve(simulator, port, f"OIDC issuer for user pool {simulator.pool_id}")


def _load_state(simulator: StravaSimulator, file: Path) -> None:
    try:
        load_snapshot(simulator, file.read_bytes())
    except msgspec.DecodeError as error:
        typer.echo(f"{file} is not a valid Strava state file: {error}", err=True)
        raise typer.Exit(2) from error


def _serve(simulator: Simulator, port: int, name: str) -> None:
    async def run(stop: asyncio.Event) -> None:
        async with simulator.serving(port=port):
            typer.echo(f"{name} is simulated at {simulator.url}; Ctrl-C stops it.")
            await stop.wait()

    try:
        run_until_stopped(run)
    except ListenError as error:
        typer.echo(f"{error}. Choose another with --port.", err=True)
        raise typer.Exit(2) from error


sim = typer.Typer(
    help="Simulate external services and the clients that call Tally.",
    no_args_is_help=True,
)
for command in (boards, athletes, strava, oidc, apns, phones, players, cricket):
    sim.command(command.__name__)(command)


@sim.callback()
def simulate() -> None:
    """Keep subcommand names even if only one command is registered."""
