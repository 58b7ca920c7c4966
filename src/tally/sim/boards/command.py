"""`tally sim boards`: virtual boards that post readings to a server, here or elsewhere, and a table of how they do.

tally sim boards --count 1000 --url http://127.0.0.1:8080 --admin-token-file data/devices-admin.key
--interval 10
"""

import asyncio
import random
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from rich.console import Console, RenderableType

from tally.errors import Invalid, Unavailable
from tally.kit.clock import SystemClock
from tally.kit.server import run_until_stopped
from tally.settings import Secret
from tally.sim.boards.devices_client import TIMEOUT, DevicesClient
from tally.sim.boards.display import rendered, summary
from tally.sim.boards.fleet import BoardBehaviour, BoardFleet
from tally.sim.command_line import display_until, exit_on_error, wait_for_end
from tally.sim.http_client import backend_url, read_secret

KEY_VARIABLE = "TALLY_SIM_API_KEY"
CONNECTIONS = 256

Count = Annotated[int, typer.Option(min=1, max=100_000, help="How many boards.")]
Url = Annotated[str, typer.Option(help="The server, such as http://127.0.0.1:8080.")]
Key = Annotated[
    str | None,
    typer.Option("--api-key", envvar=KEY_VARIABLE, help="The boards' API key.", show_default=False),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--admin-token-file",
        help="Instead of a key: the operator's token, with which a key is made.",
    ),
]
Interval = Annotated[
    float, typer.Option(min=0.001, help="Seconds between two readings of a board.")
]
Backlog = Annotated[
    int,
    typer.Option(min=0, max=100_000, help="Readings that each board has buffered when it starts."),
]
Offline = Annotated[
    float,
    typer.Option(
        min=0, max=1, help="Share of windows after which a board loses its network for a while."
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="The same number makes the same boards with the same weather.")
]
Seconds = Annotated[
    float | None, typer.Option(min=0, help="Stop after so long; without it, at Ctrl-C.")
]
Requests = Annotated[int | None, typer.Option(min=1, help="Stop after so many requests.")]


def boards(
    *,
    count: Count = 10,
    url: Url = "http://127.0.0.1:8080",
    api_key: Key = None,
    admin_token_file: TokenFile = None,
    interval: Interval = 5.0,
    backlog: Backlog = 0,
    offline: Offline = 0.01,
    seed: Seed = None,
    seconds: Seconds = None,
    requests: Requests = None,
) -> None:
    """Let virtual boards measure, lose their network, restart, and post readings; and watch them."""
    clock, rng = SystemClock(), random.Random(seed)  # noqa: S311 - weather, not keys
    behaviour = BoardBehaviour(interval=interval, backlog=backlog, goes_offline=offline)
    with exit_on_error():
        token = Secret("") if api_key else read_token(admin_token_file)

    async def run(stop: asyncio.Event) -> None:
        builder = (
            ClientBuilder().max_connections(CONNECTIONS).timeout(TIMEOUT).follow_redirects(False)
        )
        async with builder.build() as client:
            where = devices_url(url)
            key = Secret(api_key) if api_key else await create_api_key(client, where, token)
            fleet = BoardFleet(
                DevicesClient(client, where, key, clock, most_requests=requests),
                clock,
                rng,
                behaviour,
            )
            await watch(fleet, count, stop, seconds)

    with exit_on_error():
        run_until_stopped(run)


def devices_url(url: str) -> str:
    """The address of the devices backend of a server, whether or not its name was given too."""
    return backend_url(url, "devices")


class _Created(msgspec.Struct, frozen=True):
    api_key: str


def read_token(file: Path | None) -> Secret:
    """The operator's token."""
    if file is None:
        raise Invalid(
            f"The boards need an API key: give --api-key or {KEY_VARIABLE}, or --admin-token-file to make one"
        )
    return read_secret(file)


async def create_api_key(client: Client, url: str, token: Secret) -> Secret:
    """A new API key, made with the operator's token."""
    body = {"description": "virtual boards"}
    try:
        response = (
            await client.post(f"{url}/api-keys")
            .bearer_auth(token.reveal())
            .body_json(body)
            .build()
            .send()
        )
        content = bytes(await response.bytes())
    except PyreqwestError as error:
        raise Unavailable(f"{url} cannot be reached: {type(error).__name__}") from error
    if response.status != 201:
        raise Invalid(
            f"{url} makes no API key with this token: {response.status} {content[:200].decode(errors='replace')}"
        )
    return Secret(msgspec.json.decode(content, type=_Created).api_key)


async def watch(fleet: BoardFleet, count: int, stop: asyncio.Event, seconds: float | None) -> None:
    """Show how the fleet lives until it is time to stop, and end with the sums."""
    console, clock = Console(), fleet.clock
    started = clock.monotonic()
    ending = asyncio.create_task(
        wait_for_end(clock, seconds, stop, fleet.refused, fleet.uplink.spent)
    )

    async def drawn() -> RenderableType:
        return rendered(fleet, fleet.uplink.url, clock.monotonic() - started)

    async with fleet.living(count):
        await display_until(ending, console, clock, drawn)
        elapsed = clock.monotonic() - started
    console.print(summary(fleet, elapsed), soft_wrap=True)
    if fleet.refused.is_set():
        raise Invalid(f"The server refuses the boards: {fleet.stats.last_error}")
