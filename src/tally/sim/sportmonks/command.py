"""`tally sim cricket`: plays back matches at any speed and issues tokens for the app's users.

    tally sim cricket --speed 60 --match 1304076.json --match 1082625.json

Files are in Cricsheet's JSON format. Without a file, the command plays the bundled match.
"""

import asyncio
import math
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tally.kit.clock import Clock, SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.sim.command_line import (
    COGNITO_PORT,
    SPORTMONKS_PORT,
    Seconds,
    display_until,
    wait_for_end,
)
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.sportmonks.core import HourlyRateLimit
from tally.sim.sportmonks.cricsheet import InvalidMatchFile, bundled_match, read_match
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.sim.sportmonks.simulator import SportMonksSimulator

UNLIMITED_REQUESTS: Final = 10**9

MatchFiles = Annotated[
    list[Path] | None,
    typer.Option("--match", help="Match file in Cricsheet's JSON format; may be repeated."),
]
Speed = Annotated[
    float,
    typer.Option(
        min=0.001, help="Playback speed; 60: a minute per second, inf: one ball per poll."
    ),
]
SportMonksPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port for the SportMonks simulator.")
]
CognitoPort = Annotated[int, typer.Option(min=0, max=65535, help="Port for the Cognito simulator.")]
Limit = Annotated[int, typer.Option(min=1, help="Maximum requests per hour and resource.")]
Schedule = Annotated[
    int, typer.Option(min=0, max=100_000, help="Number of additional scheduled matches.")
]


def cricket(
    *,
    match: MatchFiles = None,
    speed: Speed = 60,
    port: SportMonksPort = SPORTMONKS_PORT,
    cognito_port: CognitoPort = COGNITO_PORT,
    limit: Limit = UNLIMITED_REQUESTS,
    schedule: Schedule = 0,
    seconds: Seconds = None,
) -> None:
    """Simulate SportMonks with recorded matches, and Cognito for the app's users."""
    matches = [_read(path) for path in match] if match else [bundled_match()]
    clock = SystemClock()

    async def run(stop: asyncio.Event) -> None:
        sportmonks = SportMonksSimulator(clock, limits=HourlyRateLimit(clock, limit))
        for played in matches:
            sportmonks.add(played, **_playback_options(speed))
        sportmonks.schedule(schedule)
        async with (
            sportmonks.serving(port=port),
            CognitoSimulator(clock).serving(port=cognito_port) as cognito,
        ):
            _print_settings(sportmonks, cognito, matches)
            await watch(sportmonks, clock, stop, seconds)

    try:
        run_until_stopped(run)
    except ListenError as error:
        typer.echo(f"{error}. Choose another with --port and --cognito-port.", err=True)
        raise typer.Exit(2) from error


def _print_settings(
    sportmonks: SportMonksSimulator, cognito: CognitoSimulator, matches: list[Match]
) -> None:
    leagues = ",".join(sorted({str(match.league_id) for match in matches}))
    for line in (
        f"SportMonks is simulated at {sportmonks.api}, with the token {sportmonks.api_token}",
        f"Cognito is simulated at {cognito.issuer}, with the client {cognito.client_id}",
        f"To track every ball, set TALLY_CRICKET_MARQUEE_LEAGUES={leagues}",
    ):
        typer.echo(line, err=True)


async def watch(
    sportmonks: SportMonksSimulator, clock: Clock, stop: asyncio.Event, seconds: float | None
) -> None:
    """Display the matches until the end of the run, and print the totals."""
    console = Console()
    end = asyncio.create_task(wait_for_end(clock, seconds, stop))

    async def draw() -> RenderableType:
        return render_matches(sportmonks)

    await display_until(end, console, clock, draw)
    console.print(matches_line(sportmonks), soft_wrap=True)


def render_matches(sportmonks: SportMonksSimulator) -> Group:
    table = Table(title=f"{len(sportmonks.playbacks)} matches at {sportmonks.api}")
    for column in ("Id", "Match", "Status", "Score", "Last ball"):
        table.add_column(column)
    for playback in sportmonks.playbacks.values():
        table.add_row(*_row(playback))
    return Group(table, Text(matches_line(sportmonks)))


def matches_line(sportmonks: SportMonksSimulator) -> str:
    """The totals on one line."""
    playbacks = sportmonks.playbacks.values()
    finished = sum(playback.progress.is_over for playback in playbacks)
    polls = sportmonks.faults.count("/api/v2.0/livescores")
    requests = len(sportmonks.faults.requests)
    return (
        f"{finished} of {len(playbacks)} matches finished; "
        f"{requests} requests, including {polls} polls of the live scores"
    )


def _row(playback: MatchPlayback) -> tuple[str, ...]:
    fixture = playback.fixture()
    home, away = playback.match.teams
    scores = "; ".join(
        f"{run['score']}/{run['wickets']} ({run['overs']})" for run in fixture["runs"]
    )
    status = fixture["note"] or fixture["status"]
    last_ball = _ball_text(fixture["balls"][-1]) if fixture["balls"] else ""
    return str(playback.match.id), f"{home} v {away}", status, scores, last_ball


def _ball_text(ball: dict[str, Any]) -> str:
    bowler, batter = ball["bowler"]["fullname"], ball["batsman"]["fullname"]
    return f"{ball['ball']} {bowler} to {batter}: {ball['score']['name']}"


def _playback_options(speed: float) -> dict[str, Any]:
    return {"per_poll": 1} if math.isinf(speed) else {"speed": speed}


def _read(path: Path) -> Match:
    try:
        return read_match(path.read_bytes(), path.stem)
    except (OSError, InvalidMatchFile) as error:
        typer.echo(f"Cannot read a match from {path}: {error}", err=True)
        raise typer.Exit(2) from error
