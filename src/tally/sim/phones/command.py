"""`tally sim phones`: runs virtual phones whose users follow a match.

tally sim phones --count 100 --match 58123 --url http://127.0.0.1:8080
"""

import asyncio
import random
from typing import Annotated

import typer
from pyreqwest.client import Client, ClientBuilder
from rich.console import Console, RenderableType

from tally.kit.clock import Clock, SystemClock
from tally.kit.server import run_until_stopped
from tally.sim.command_line import (
    APNS_CONTROL_PORT,
    COGNITO_PORT,
    Seconds,
    ServerUrl,
    build_client,
    display_until,
    exit_on_error,
    stats_line,
    stats_table,
    wait_for_end,
)
from tally.sim.http_client import backend_url
from tally.sim.phones.cricket_client import CricketClient, PhoneOwner
from tally.sim.phones.display import phone_rows
from tally.sim.phones.fleet import PhoneBehaviour, PhoneFleet
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import RemotePushService

Count = Annotated[int, typer.Option(min=1, max=100_000, help="Number of phones, one user each.")]
Match = Annotated[
    list[str] | None,
    typer.Option(help="Match to follow; may be repeated. Default: the live matches."),
]
IssuerUrl = Annotated[str, typer.Option(help="URL of the Cognito simulator that issues tokens.")]
ClientId = Annotated[
    str | None,
    typer.Option(help="Client id of the app; default: the first client of the issuer."),
]
AppleUrl = Annotated[
    str, typer.Option("--apple", help="URL of the control API of the APNs simulator.")
]
Channels = Annotated[
    float, typer.Option(min=0, max=1, help="Share of phones with iOS 18, which use channels.")
]
Seed = Annotated[int | None, typer.Option(help="Random seed; the same seed gives the same users.")]
Calm = Annotated[
    bool, typer.Option("--calm", help="Users do not quit, dismiss activities or go offline.")
]


def phones(
    *,
    count: Count = 10,
    match: Match = None,
    url: ServerUrl = "http://127.0.0.1:8080",
    issuer: IssuerUrl = f"http://127.0.0.1:{COGNITO_PORT}",
    client_id: ClientId = None,
    apple: AppleUrl = f"http://127.0.0.1:{APNS_CONTROL_PORT}",
    channels: Channels = 0.5,
    seed: Seed = None,
    seconds: Seconds = None,
    calm: Calm = False,
) -> None:
    """Run virtual phones that follow a match and display its Live Activities."""
    clock, rng = SystemClock(), random.Random(seed)  # noqa: S311  user behaviour, not keys
    behaviour = (
        PhoneBehaviour(
            quit_probability=0, offline_probability=0, dismiss_probability=0, rotate_probability=0
        )
        if calm
        else PhoneBehaviour()
    )

    async def run(stop: asyncio.Event) -> None:
        # Deliveries arrive on an endless stream, so they need a client without a timeout.
        async with build_client() as client, ClientBuilder().build() as streaming_client:
            cricket_url = backend_url(url, "cricket")
            mailbox = f"phones-{rng.getrandbits(64):016x}"
            push_service = RemotePushService(client, apple.rstrip("/"), mailbox)
            deliveries = RemotePushService(streaming_client, apple.rstrip("/"), mailbox)
            owners = [
                PhoneOwner(client, issuer, name, clock, client_id)
                for name in user_names(count, rng)
            ]
            fleet_phones = [
                _phone(client, cricket_url, owner, push_service, clock) for owner in owners
            ]
            for phone in fleet_phones:
                phone.os_version = "18.1" if rng.random() < channels else "17.4"
            matches = match or await fleet_phones[0].api.live_matches()
            fleet = PhoneFleet(fleet_phones, deliveries, clock, rng, behaviour)
            await watch(fleet, matches, cricket_url, stop, seconds)

    with exit_on_error():
        run_until_stopped(run)


def user_names(count: int, rng: random.Random) -> list[str]:
    """User names that are unique to this run."""
    group = f"{rng.getrandbits(32):08x}"
    return [f"fan-{group}-{number}" for number in range(count)]


def _phone(
    client: Client, url: str, owner: PhoneOwner, push_service: RemotePushService, clock: Clock
) -> VirtualPhone:
    api = CricketClient(client, url, owner.token)
    return VirtualPhone(f"phone-of-{owner.user_id}", api, push_service, clock)


async def watch(
    fleet: PhoneFleet, matches: list[str], url: str, stop: asyncio.Event, seconds: float | None
) -> None:
    """Display the fleet until the end of the run, and print the totals."""
    console, clock = Console(), fleet.clock
    started = clock.monotonic()
    end = asyncio.create_task(wait_for_end(clock, seconds, stop))

    async def draw() -> RenderableType:
        return stats_table("Phones", url, phone_rows(fleet), clock.monotonic() - started)

    async with fleet.running(matches):
        await display_until(end, console, clock, draw)
        summary = stats_line(phone_rows(fleet), clock.monotonic() - started)
    console.print(summary, soft_wrap=True)
