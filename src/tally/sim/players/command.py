"""`tally sim players`: made-up players and their game server, on a scoreboard here or elsewhere, and a board to watch.

tally sim players --count 50 --url http://127.0.0.1:8080 --internal-key-file
data/scoreboard-internal.key
"""

import asyncio
import random
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from pyreqwest.client import ClientBuilder
from rich.console import Console, RenderableType

from tally.errors import Invalid, TallyError
from tally.kit.clock import SystemClock
from tally.kit.server import run_until_stopped
from tally.settings import Secret
from tally.sim.command_line import display_until, exit_on_error, wait_for_end
from tally.sim.http_client import normalize_server_url, read_secret
from tally.sim.players.display import rendered, summary
from tally.sim.players.fleet import PlayerFleet
from tally.sim.players.player import PlayerBehaviour
from tally.sim.players.scoreboard_client import LeaderboardPage, ScoreboardClient

KEY_VARIABLE = "TALLY_SIM_INTERNAL_KEY"
CONNECTIONS = 256
CALL_SECONDS = 30
REFRESH_SECONDS = 2.0

Count = Annotated[int, typer.Option(min=1, max=100_000, help="How many players.")]
Url = Annotated[str, typer.Option(help="The server, such as http://127.0.0.1:8080.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--internal-key", envvar=KEY_VARIABLE, help="The game servers' key.", show_default=False
    ),
]
KeyFile = Annotated[
    Path | None, typer.Option("--internal-key-file", help="A file with the game servers' key.")
]
Interval = Annotated[
    float,
    typer.Option(
        min=0.001, help="Seconds between two games of a player, on average a little more."
    ),
]
Seed = Annotated[int | None, typer.Option(help="The same number makes the same people.")]
Seconds = Annotated[
    float | None, typer.Option(min=0, help="Stop after so long; without it, at Ctrl-C.")
]


def players(
    *,
    count: Count = 20,
    url: Url = "http://127.0.0.1:8080",
    internal_key: Key = None,
    internal_key_file: KeyFile = None,
    interval: Interval = 8.0,
    seed: Seed = None,
    seconds: Seconds = None,
) -> None:
    """Let made-up players sign up, play, send tokens twice and try to cheat; and watch the board."""
    clock, rng = SystemClock(), random.Random(seed)  # noqa: S311  (games, not keys)
    with exit_on_error():
        key, where = (
            Secret(internal_key) if internal_key else read_key(internal_key_file),
            api_url(url),
        )

    async def run(stop: asyncio.Event) -> None:
        builder = (
            ClientBuilder()
            .max_connections(CONNECTIONS)
            .timeout(timedelta(seconds=CALL_SECONDS))
            .follow_redirects(False)
        )
        async with builder.build() as client:
            server = ScoreboardClient(client, where, key, clock)
            await watch(
                PlayerFleet(server, clock, rng, PlayerBehaviour(interval=interval)),
                count,
                stop,
                seconds,
            )

    with exit_on_error():
        run_until_stopped(run)


def api_url(url: str) -> str:
    """The address of the scoreboard's API on a server, whether or not its name was given too."""
    bare = normalize_server_url(url).removesuffix("/api/v1").removesuffix("/scoreboard")
    return f"{bare}/scoreboard/api/v1"


def read_key(file: Path | None) -> Secret:
    """The game servers' key."""
    if file is None:
        raise Invalid(
            f"The game server needs its key: give --internal-key, {KEY_VARIABLE} or --internal-key-file"
        )
    return read_secret(file)


async def watch(fleet: PlayerFleet, count: int, stop: asyncio.Event, seconds: float | None) -> None:
    """Show how the players do until it is time to stop, and end with the sums."""
    console, clock = Console(), fleet.clock
    started = clock.monotonic()
    ending = asyncio.create_task(wait_for_end(clock, seconds, stop, fleet.refused))

    async def drawn() -> RenderableType:
        board = await _board(fleet) if console.is_terminal else None
        return rendered(fleet, board, clock.monotonic() - started)

    async with fleet.living(count):
        await display_until(ending, console, clock, drawn, REFRESH_SECONDS)
        elapsed = clock.monotonic() - started
    console.print(summary(fleet, elapsed), soft_wrap=True)
    if fleet.refused.is_set():
        raise Invalid(f"The server refuses the players: {fleet.server.stats.last_error}")


async def _board(fleet: PlayerFleet) -> LeaderboardPage | None:
    try:
        return await fleet.server.board()
    except TallyError as error:
        fleet.server.stats.last_error = error.message
        return None
