"""`tally sim players`: runs virtual players and their game server against a scoreboard.

tally sim players --count 50 --internal-key-file data/scoreboard-internal.key
"""

import asyncio
import random
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table

from tally.errors import Invalid, TallyError
from tally.kit.clock import SystemClock
from tally.kit.server import run_until_stopped
from tally.settings import Secret
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
from tally.sim.http_client import normalize_server_url, read_secret
from tally.sim.players.fleet import PlayerFleet
from tally.sim.players.player import PlayerBehaviour
from tally.sim.players.scoreboard_client import LeaderboardTop, ScoreboardClient

KEY_VARIABLE: Final = "TALLY_SIM_INTERNAL_KEY"
# Each redraw fetches the leaderboard.
REFRESH_SECONDS: Final = 2.0

Count = Annotated[int, typer.Option(min=1, max=100_000, help="Number of players.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--internal-key",
        envvar=KEY_VARIABLE,
        help="Internal key of the game servers.",
        show_default=False,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--internal-key-file", help="File with the internal key of the game servers."),
]
Interval = Annotated[
    float, typer.Option(min=0.001, help="Approximate seconds between two games of a player.")
]
Seed = Annotated[
    int | None, typer.Option(help="Random seed; the same seed gives the same players.")
]


def players(
    *,
    count: Count = 20,
    url: ServerUrl = "http://127.0.0.1:8080",
    internal_key: Key = None,
    internal_key_file: KeyFile = None,
    interval: Interval = 8.0,
    seed: Seed = None,
    seconds: Seconds = None,
) -> None:
    """Run virtual players who register, play, replay tokens and try to cheat."""
    clock, rng = SystemClock(), random.Random(seed)  # noqa: S311  game data, not keys
    with exit_on_error():
        key = Secret(internal_key) if internal_key else read_key(internal_key_file)
        scoreboard_url = api_url(url)

    async def run(stop: asyncio.Event) -> None:
        async with build_client() as client:
            scoreboard = ScoreboardClient(client, scoreboard_url, key, clock)
            behaviour = PlayerBehaviour(interval=interval)
            await watch(PlayerFleet(scoreboard, clock, rng, behaviour), count, stop, seconds)

    with exit_on_error():
        run_until_stopped(run)


def api_url(url: str) -> str:
    """The URL of the scoreboard API, given the server's URL or the API's."""
    server = normalize_server_url(url).removesuffix("/api/v1").removesuffix("/scoreboard")
    return f"{server}/scoreboard/api/v1"


def read_key(file: Path | None) -> Secret:
    """Read the internal key."""
    if file is None:
        raise Invalid(
            "The game server needs an internal key: "
            f"set --internal-key, {KEY_VARIABLE} or --internal-key-file"
        )
    return read_secret(file)


async def watch(fleet: PlayerFleet, count: int, stop: asyncio.Event, seconds: float | None) -> None:
    """Display the fleet until the end of the run, and print the totals."""
    console, clock = Console(), fleet.clock
    started = clock.monotonic()
    end = asyncio.create_task(wait_for_end(clock, seconds, stop, fleet.rejected))

    async def draw() -> RenderableType:
        page = await _leaderboard(fleet) if console.is_terminal else None
        return render_players(fleet, page, clock.monotonic() - started)

    async with fleet.running(count):
        await display_until(end, console, clock, draw, REFRESH_SECONDS)
        elapsed = clock.monotonic() - started
    console.print(stats_line(player_rows(fleet, elapsed), elapsed), soft_wrap=True)
    if fleet.rejected.is_set():
        raise Invalid(f"The server rejected the players: {fleet.scoreboard.stats.last_error}")


async def _leaderboard(fleet: PlayerFleet) -> LeaderboardTop | None:
    try:
        return await fleet.scoreboard.leaderboard()
    except TallyError as error:
        fleet.scoreboard.stats.last_error = error.message
        return None


def player_rows(fleet: PlayerFleet, seconds: float) -> list[tuple[str, str]]:
    """Labels and values."""
    stats = fleet.scoreboard.stats
    rate = stats.games / seconds if seconds else 0.0
    return [
        ("Players", f"{len(fleet.players):,} ({fleet.registered_count:,} registered)"),
        ("Requests", f"{stats.requests:,}, {stats.failures:,} failed or throttled"),
        ("Games", f"{stats.games:,} ({rate:,.1f} per second), {stats.points:,} points"),
        ("Replayed tokens", f"{stats.replays:,}"),
        ("Cheating attempts", f"{stats.cheats:,}"),
        ("Violations", f"{stats.violations:,}"),
        ("Latency", stats.latency_text),
        ("Last error", stats.last_error or "none"),
    ]


def render_players(fleet: PlayerFleet, page: LeaderboardTop | None, seconds: float) -> Group:
    """The statistics and, if available, the top of the leaderboard."""
    rows = player_rows(fleet, seconds)
    table = stats_table("Players", fleet.scoreboard.url, rows, seconds)
    if page is None:
        return Group(table)
    top = Table(
        "Rank", "Player", "Score", title=f"{page.total_players:,} players", title_justify="right"
    )
    for row in page.items:
        top.add_row(str(row.rank), row.username, f"{row.score:,}")
    return Group(table, top)
