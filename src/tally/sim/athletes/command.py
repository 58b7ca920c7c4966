"""`tally sim athletes`: a fleet of made-up athletes, with the Strava and OIDC simulators if none are named.

    tally sim athletes --count 20 --url http://127.0.0.1:8000/collect --strava http://127.0.0.1:8101

Without `--strava` both simulators are started here, on ports that a collect server can be pointed
at, and webhooks go to the server at `--url`.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

import typer
from pyreqwest.client import Client, ClientBuilder
from rich.console import Console, RenderableType

from tally.errors import TallyError, Unavailable
from tally.kit.clock import Clock, SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.sim.athletes.collect_client import CollectClient
from tally.sim.athletes.display import rendered, summary
from tally.sim.athletes.fleet import AcceleratedClock, AthleteFleet
from tally.sim.athletes.strava_client import StravaControlClient
from tally.sim.command_line import OIDC_PORT, STRAVA_PORT, display_until, wait_for_end
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.strava.model import StravaError
from tally.sim.strava.rate_limits import UNLIMITED, RateLimits
from tally.sim.strava.simulator import StravaSimulator

Count = Annotated[int, typer.Option(min=1, max=100_000, help="How many athletes.")]
Url = Annotated[
    str | None,
    typer.Option(help="A collect server to join, such as http://127.0.0.1:8000/collect."),
]
StravaUrl = Annotated[
    str | None,
    typer.Option(help="A Strava simulator that is running; without it, one starts here."),
]
Speed = Annotated[
    float, typer.Option(min=0.001, help="How many of their seconds pass in one of ours.")
]
Seed = Annotated[
    int | None, typer.Option(help="The same number makes the same people and the same days.")
]
Seconds = Annotated[
    float | None, typer.Option(min=0, help="Stop by itself after so long; without it, at Ctrl-C.")
]
VerifyToken = Annotated[
    str | None,
    typer.Option(
        envvar="TALLY_COLLECT_STRAVA_VERIFY_TOKEN",
        help="What the collect server expects in the webhook's handshake.",
    ),
]
StravaPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Where a Strava simulator started here listens.")
]
OidcPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Where an issuer started here listens.")
]


def athletes(
    *,
    count: Count = 10,
    url: Url = None,
    strava: StravaUrl = None,
    speed: Speed = 3600,
    seed: Seed = None,
    seconds: Seconds = None,
    verify_token: VerifyToken = None,
    strava_port: StravaPort = STRAVA_PORT,
    oidc_port: OidcPort = OIDC_PORT,
) -> None:
    """Let made-up athletes ride, run, swim and walk, and watch them."""
    rng = random.Random(seed)  # noqa: S311  made-up workouts, not keys
    clock = SystemClock()

    async def run(stop: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                ClientBuilder().follow_redirects(False).build()
            )
            where = strava
            if where is None:
                started = local_simulators(clock, url, verify_token, strava_port, oidc_port)
                where = await stack.enter_async_context(started)
            collect = None if url is None else CollectClient(client, url.rstrip("/"))
            fleet = AthleteFleet(
                _accounts(client, where), AcceleratedClock(clock, speed), rng, collect
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
    verify_token: str | None,
    strava_port: int,
    oidc_port: int,
) -> AsyncIterator[str]:
    """Both simulators, with webhooks to the collect server if there is one; yields the address of Strava's."""
    limits = RateLimits(clock, UNLIMITED, UNLIMITED)
    async with (
        StravaSimulator(clock, limits=limits).serving(port=strava_port) as strava,
        OidcSimulator(clock).serving(port=oidc_port) as issuer,
    ):
        typer.echo(f"Strava is simulated at {strava.url}, an issuer at {issuer.issuer}", err=True)
        if collect_url is not None:
            await strava.webhooks.subscribe(
                f"{collect_url.rstrip('/')}/webhooks/strava", verify_token or ""
            )
        yield strava.url


async def watch(
    fleet: AthleteFleet, count: int, clock: Clock, stop: asyncio.Event, seconds: float | None
) -> None:
    """Gather the fleet, show how it lives until it is time to stop, and end with the sums."""
    console = Console()
    with console.status(f"{count} athletes sign up"):
        await fleet.gather(count)
    ending = asyncio.create_task(wait_for_end(clock, seconds, stop))

    async def drawn() -> RenderableType:
        return rendered(fleet, await _state(fleet))

    async with fleet.living():
        await display_until(ending, console, clock, drawn)
        state = await _state(fleet)
    console.print(summary(fleet, state), soft_wrap=True)


async def _state(fleet: AthleteFleet) -> Any:
    try:
        return await fleet.accounts.state()
    except Unavailable:
        return None


def _accounts(client: Client, url: str) -> StravaControlClient:
    return StravaControlClient(client, url.rstrip("/"))
