"""`tally sim boards`: runs virtual boards that post readings to a server.

tally sim boards --count 1000 --url http://127.0.0.1:8080 --operator-token-file data/operator.token
"""

import asyncio
import random
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from pyreqwest.client import Client
from rich.console import Console, RenderableType

from tally.errors import Invalid
from tally.kit.clock import SystemClock
from tally.kit.server import run_until_stopped
from tally.settings import Secret
from tally.sim.boards.devices_client import DevicesClient
from tally.sim.boards.fleet import BoardBehaviour, BoardFleet
from tally.sim.command_line import (
    Seconds,
    ServerUrl,
    build_client,
    display_until,
    exit_on_error,
    stats_line,
    stats_table,
    wait_for_end,
)
from tally.sim.http_client import backend_url, read_secret, send_request

KEY_VARIABLE: Final = "TALLY_SIM_API_KEY"

Count = Annotated[int, typer.Option(min=1, max=100_000, help="Number of boards.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--api-key", envvar=KEY_VARIABLE, help="API key of the boards.", show_default=False
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--operator-token-file",
        help="File with an operator token; the command creates an API key with it.",
    ),
]
Interval = Annotated[
    float, typer.Option(min=0.001, help="Seconds between two readings of a board.")
]
Backlog = Annotated[
    int, typer.Option(min=0, max=100_000, help="Buffered readings per board at start-up.")
]
Offline = Annotated[
    float,
    typer.Option(min=0, max=1, help="Probability per reading that a board goes offline."),
]
Seed = Annotated[
    int | None, typer.Option(help="Random seed; the same seed gives the same boards and readings.")
]
Requests = Annotated[int | None, typer.Option(min=1, help="Stop after this many requests.")]


def boards(
    *,
    count: Count = 10,
    url: ServerUrl = "http://127.0.0.1:8080",
    api_key: Key = None,
    operator_token_file: TokenFile = None,
    interval: Interval = 5.0,
    backlog: Backlog = 0,
    offline: Offline = 0.01,
    seed: Seed = None,
    seconds: Seconds = None,
    requests: Requests = None,
) -> None:
    """Run virtual boards that measure, go offline, restart and post readings."""
    clock, rng = SystemClock(), random.Random(seed)  # noqa: S311  sensor data, not keys
    behaviour = BoardBehaviour(interval=interval, backlog=backlog, offline_probability=offline)
    with exit_on_error():
        token = Secret("") if api_key else read_token(operator_token_file)

    async def run(stop: asyncio.Event) -> None:
        async with build_client() as client:
            devices_url = backend_url(url, "devices")
            key = Secret(api_key) if api_key else await create_api_key(client, devices_url, token)
            devices = DevicesClient(client, devices_url, key, clock, max_requests=requests)
            await watch(BoardFleet(devices, clock, rng, behaviour), count, stop, seconds)

    with exit_on_error():
        run_until_stopped(run)


class _CreatedKey(msgspec.Struct, frozen=True):
    api_key: str


def read_token(file: Path | None) -> Secret:
    """Read the operator token."""
    if file is None:
        raise Invalid(
            f"Boards need an API key: set --api-key or {KEY_VARIABLE}, "
            "or --operator-token-file to create one"
        )
    return read_secret(file)


async def create_api_key(client: Client, url: str, token: Secret) -> Secret:
    """Create an API key with the admin token."""
    request = client.post(f"{url}/api-keys").bearer_auth(token.reveal())
    response, content = await send_request(request.body_json({"description": "virtual boards"}))
    if response.status != 201:
        detail = content[:200].decode(errors="replace")
        raise Invalid(f"{url} did not create an API key: {response.status} {detail}")
    return Secret(msgspec.json.decode(content, type=_CreatedKey).api_key)


async def watch(fleet: BoardFleet, count: int, stop: asyncio.Event, seconds: float | None) -> None:
    """Display the fleet until the end of the run, and print the totals."""
    console, clock = Console(), fleet.clock
    started = clock.monotonic()
    end = asyncio.create_task(
        wait_for_end(clock, seconds, stop, fleet.rejected, fleet.devices.exhausted)
    )

    async def draw() -> RenderableType:
        elapsed = clock.monotonic() - started
        return stats_table("Boards", fleet.devices.url, board_rows(fleet, elapsed), elapsed)

    async with fleet.running(count):
        await display_until(end, console, clock, draw)
        elapsed = clock.monotonic() - started
    console.print(stats_line(board_rows(fleet, elapsed), elapsed), soft_wrap=True)
    if fleet.rejected.is_set():
        raise Invalid(f"The server rejected the boards: {fleet.stats.last_error}")


def board_rows(fleet: BoardFleet, seconds: float) -> list[tuple[str, str]]:
    """Labels and values."""
    stats = fleet.stats
    rate = stats.acknowledged / seconds if seconds else 0.0
    offline = len(fleet.offline)
    dropped = f", {fleet.dropped_count:,} dropped" if fleet.dropped_count else ""
    return [
        (
            "Boards",
            f"{len(fleet.boards):,} ({fleet.registered_count:,} registered, {offline:,} offline)",
        ),
        ("Readings measured", f"{fleet.measured_count:,}"),
        ("Sent", f"{stats.sent:,} in {stats.requests:,} requests, {stats.failures:,} failed"),
        ("Acknowledged", f"{stats.acknowledged:,} ({rate:,.1f} per second)"),
        ("Duplicates", f"{stats.duplicates:,}"),
        ("Rejected", f"{stats.rejected:,}"),
        ("Buffered", f"{fleet.buffered_count:,}{dropped}"),
        ("Latency", stats.latency_text),
        ("Last error", stats.last_error or "none"),
    ]
