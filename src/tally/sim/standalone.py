"""`tally sim strava` and `tally sim oidc`: a simulator by itself, for a server that runs elsewhere on this machine."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import typer

from tally.kit.clock import SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.sim.oidc.issuer import Issuer
from tally.sim.strava.limits import PLENTY, RateLimits
from tally.sim.strava.simulator import Strava
from tally.sim.strava.snapshot import restore, take

STRAVA_PORT, OIDC_PORT = 8101, 8102

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")]


class Simulator(Protocol):
    url: str

    def serving(
        self, host: str = "127.0.0.1", port: int = 0
    ) -> AbstractAsyncContextManager[object]: ...


def strava(
    *,
    port: Port = STRAVA_PORT,
    state: Annotated[
        Path | None,
        typer.Option(
            help="A file that the world is read from at the start and kept in at the end."
        ),
    ] = None,
    unlimited: Annotated[
        bool, typer.Option("--unlimited", help="Without Strava's limits on requests.")
    ] = False,
) -> None:
    """Simulate Strava: consent, tokens, activities, limits and webhooks."""
    clock = SystemClock()
    limits = RateLimits(clock, PLENTY, PLENTY) if unlimited else RateLimits(clock)
    world = Strava(clock, limits=limits)
    if state is not None and state.exists():
        _restore(world, state)
    _serve(world, port, "Strava")
    if state is not None:
        state.write_bytes(take(world))


def _restore(world: Strava, state: Path) -> None:
    try:
        restore(world, state.read_bytes())
    except msgspec.DecodeError as error:
        typer.echo(f"{state} holds no world of Strava's: {error}", err=True)
        raise typer.Exit(2) from error


def oidc(
    *,
    port: Port = OIDC_PORT,
    approve: Annotated[
        str | None, typer.Option(help="Log everybody in as this person, without a page.")
    ] = None,
) -> None:
    """Simulate an OpenID Connect issuer in the shape of Cognito."""
    issuer = Issuer(SystemClock(), auto_approve=approve)
    _serve(issuer, port, f"The issuer of the pool {issuer.pool}")


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
