"""`tally sim phones`: virtual phones whose owners follow a match at a server here or elsewhere, and a table of what they see.

tally sim phones --count 100 --match 58123 --url http://127.0.0.1:8080
"""

import asyncio
import random
from datetime import timedelta
from typing import Annotated, Final

import typer
from pyreqwest.client import Client, ClientBuilder
from rich.console import Console, RenderableType

from tally.kit.clock import Clock, SystemClock
from tally.kit.server import run_until_stopped
from tally.sim.command_line import APNS_CONTROL_PORT, display_until, exit_on_error, wait_for_end
from tally.sim.http_client import backend_url
from tally.sim.phones.cricket_client import CricketClient, PhoneOwner
from tally.sim.phones.display import rendered, summary
from tally.sim.phones.fleet import PhoneBehaviour, PhoneFleet
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import RemotePushService

# Where the demo has the issuer of cricket's app.
ISSUER_PORT: Final = 8103
CONNECTIONS: Final = 256

Count = Annotated[
    int, typer.Option(min=1, max=100_000, help="How many phones, each of another person.")
]
Match = Annotated[
    list[str] | None,
    typer.Option(help="A match to follow, or several; without one, what is live now."),
]
Url = Annotated[str, typer.Option(help="The server, such as http://127.0.0.1:8080.")]
Issuer = Annotated[str, typer.Option(help="The simulated issuer that signs the owners in.")]
ClientId = Annotated[
    str | None,
    typer.Option(help="The app's client id at the issuer; without it, the issuer's first."),
]
AppleUrl = Annotated[
    str, typer.Option("--apple", help="The control port of the simulated push service.")
]
Channels = Annotated[
    float, typer.Option(min=0, max=1, help="Share of phones with iOS 18, which listen to channels.")
]
Seed = Annotated[int | None, typer.Option(help="The same number makes the same people.")]
Seconds = Annotated[
    float | None, typer.Option(min=0, help="Stop after so long; without it, at Ctrl-C.")
]
Calm = Annotated[bool, typer.Option("--calm", help="Nobody quits, swipes or loses the network.")]


def phones(
    *,
    count: Count = 10,
    match: Match = None,
    url: Url = "http://127.0.0.1:8080",
    issuer: Issuer = f"http://127.0.0.1:{ISSUER_PORT}",
    client_id: ClientId = None,
    apple: AppleUrl = f"http://127.0.0.1:{APNS_CONTROL_PORT}",
    channels: Channels = 0.5,
    seed: Seed = None,
    seconds: Seconds = None,
    calm: Calm = False,
) -> None:
    """Let virtual phones follow a match, show its Live Activities, quit, rotate tokens, lose their network; and watch them."""
    clock, rng = SystemClock(), random.Random(seed)  # noqa: S311 - habits, not keys
    behaviour = (
        PhoneBehaviour(quits=0, goes_offline=0, swipes_away=0, rotates=0)
        if calm
        else PhoneBehaviour()
    )

    async def run(stop: asyncio.Event) -> None:
        builder = (
            ClientBuilder()
            .max_connections(CONNECTIONS)
            .timeout(timedelta(seconds=30))
            .follow_redirects(False)
        )
        async with builder.build() as client, ClientBuilder().build() as streaming:
            where = cricket_url(url)
            # Deliveries come on a stream that never ends, so they have a client without a time-out.
            mailbox = f"phones-{rng.getrandbits(64):016x}"
            makes = RemotePushService(client, apple.rstrip("/"), mailbox)
            reads = RemotePushService(streaming, apple.rstrip("/"), mailbox)
            owners = [
                PhoneOwner(client, issuer, name, clock, client_id) for name in names(count, rng)
            ]
            made = [_phone(client, where, owner, makes, clock) for owner in owners]
            for phone in made:
                phone.os_version = "18.1" if rng.random() < channels else "17.4"
            matches = match or await made[0].api.live()
            await watch(
                PhoneFleet(made, reads, clock, rng, behaviour), matches, where, stop, seconds
            )

    with exit_on_error():
        run_until_stopped(run)


def cricket_url(url: str) -> str:
    """The address of the cricket backend of a server, whether or not its name was given too."""
    return backend_url(url, "cricket")


def names(count: int, rng: random.Random) -> list[str]:
    """Made-up people, other ones in every run."""
    group = f"{rng.getrandbits(32):08x}"
    return [f"fan-{group}-{number}" for number in range(count)]


def _phone(
    client: Client, url: str, owner: PhoneOwner, apple: RemotePushService, clock: Clock
) -> VirtualPhone:
    return VirtualPhone(
        f"phone-of-{owner.user_id}", CricketClient(client, url, owner.token), apple, clock
    )


async def watch(
    fleet: PhoneFleet, matches: list[str], url: str, stop: asyncio.Event, seconds: float | None
) -> None:
    """Show how the phones do until it is time to stop, and end with the sums."""
    console, clock = Console(), fleet.clock
    started = clock.monotonic()
    ending = asyncio.create_task(wait_for_end(clock, seconds, stop))

    async def drawn() -> RenderableType:
        return rendered(fleet, url, clock.monotonic() - started)

    async with fleet.living(matches):
        await display_until(ending, console, clock, drawn)
        told = summary(fleet, clock.monotonic() - started)
    console.print(told, soft_wrap=True)
