"""`tally sim athletes`: runs virtual athletes, with Strava and OIDC simulators unless one is named.

    tally sim athletes --count 20 --url http://127.0.0.1:8080/collect --strava http://127.0.0.1:8101

Without `--strava` the command starts both simulators and subscribes the server at `--url` to
webhooks.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, NamedTuple

import typer
from pyreqwest.client import ClientBuilder
from rich.console import Console, RenderableType

from tally.errors import TallyError, Unavailable
from tally.kit.clock import Clock, SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.sim.athletes.collect_client import CollectClient
from tally.sim.athletes.display import athletes_line, render_athletes
from tally.sim.athletes.fleet import AcceleratedClock, AthleteFleet
from tally.sim.athletes.strava_client import StravaControlClient
from tally.sim.command_line import (
    OIDC_PORT,
    STRAVA_PORT,
    Seconds,
    display_until,
    wait_for_end,
)
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.strava.model import StravaError
from tally.sim.strava.rate_limits import UNLIMITED, RateLimits
from tally.sim.strava.simulator import StravaSimulator

Count = Annotated[int, typer.Option(min=1, max=100_000, help="Number of athletes.")]
CollectUrl = Annotated[
    str | None,
    typer.Option(help="Collect server to join, for example http://127.0.0.1:8080/collect."),
]
StravaUrl = Annotated[
    str | None,
    typer.Option(help="URL of a running Strava simulator; default: start one."),
]
Speed = Annotated[
    float, typer.Option(min=0.001, help="Simulated seconds that pass per real second.")
]
Seed = Annotated[
    int | None, typer.Option(help="Random seed; the same seed gives the same athletes and days.")
]
VerifyToken = Annotated[
    str | None,
    typer.Option(
        envvar="TALLY_COLLECT_STRAVA_VERIFY_TOKEN",
        help="Verify token that the collect server expects in the webhook handshake.",
    ),
]
WebhookSecret = Annotated[
    str | None,
    typer.Option(
        envvar="TALLY_COLLECT_STRAVA_WEBHOOK_SECRET",
        help="Last part of the webhook's path at the collect server.",
    ),
]
StravaPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port for a Strava simulator started here.")
]
OidcPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port for an OIDC simulator started here.")
]


class CallbackSecrets(NamedTuple):
    """What the collect server expects in the path and in the handshake of its webhook."""

    path_secret: str | None
    verify_token: str | None


def athletes(
    *,
    count: Count = 10,
    url: CollectUrl = None,
    strava: StravaUrl = None,
    speed: Speed = 3600,
    seed: Seed = None,
    seconds: Seconds = None,
    verify_token: VerifyToken = None,
    webhook_secret: WebhookSecret = None,
    strava_port: StravaPort = STRAVA_PORT,
    oidc_port: OidcPort = OIDC_PORT,
) -> None:
    """Run virtual athletes who ride, run, swim and walk, and display their progress."""
    rng = random.Random(seed)  # noqa: S311  training data, not keys
    clock = SystemClock()

    async def run(stop: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                ClientBuilder().follow_redirects(False).build()
            )
            strava_url = strava
            if strava_url is None:
                secrets = CallbackSecrets(webhook_secret, verify_token)
                simulators = local_simulators(clock, url, secrets, strava_port, oidc_port)
                strava_url = await stack.enter_async_context(simulators)
            fleet = AthleteFleet(
                StravaControlClient(client, strava_url.rstrip("/")),
                AcceleratedClock(clock, speed),
                rng,
                None if url is None else CollectClient(client, url.rstrip("/")),
            )
            await watch(fleet, count, clock, stop, seconds)

    try:
        run_until_stopped(run)
    except (TallyError, ListenError, StravaError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error


@asynccontextmanager
async def local_simulators(
    clock: Clock,
    collect_url: str | None,
    secrets: CallbackSecrets,
    strava_port: int,
    oidc_port: int,
) -> AsyncIterator[str]:
    """Start both simulators and subscribe the collect server; yields the URL of Strava."""
    limits = RateLimits(clock, UNLIMITED, UNLIMITED)
    async with (
        StravaSimulator(clock, limits=limits).serving(port=strava_port) as strava,
        OidcSimulator(clock).serving(port=oidc_port) as issuer,
    ):
        typer.echo(
            f"Strava is simulated at {strava.url}, the OIDC issuer at {issuer.issuer}", err=True
        )
        if collect_url is not None:
            callback_url = f"{collect_url.rstrip('/')}/webhooks/strava/{secrets.path_secret or ''}"
            await strava.webhooks.subscribe(callback_url, secrets.verify_token or "")
        yield strava.url


async def watch(
    fleet: AthleteFleet, count: int, clock: Clock, stop: asyncio.Event, seconds: float | None
) -> None:
    """Sign up the fleet, display it until the end of the run, and print the totals."""
    console = Console()
    with console.status(f"Signing up {count} athletes"):
        await fleet.sign_up(count)
    end = asyncio.create_task(wait_for_end(clock, seconds, stop))

    async def draw() -> RenderableType:
        return render_athletes(fleet, await _strava_state(fleet))

    async with fleet.running():
        await display_until(end, console, clock, draw)
        state = await _strava_state(fleet)
    console.print(athletes_line(fleet, state), soft_wrap=True)


async def _strava_state(fleet: AthleteFleet) -> Any:
    try:
        return await fleet.strava.state()
    except Unavailable:
        return None
