"""`tally sim cricket`: matches on the air, at any speed, and an issuer for the people who watch them.

    tally sim cricket --speed 60 --match 1304076.json --match 1082625.json

Without a file, the made-up match that comes with the program is played. A file is one in
Cricsheet's JSON format.
"""

import asyncio
import math
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tally.kit.clock import Clock, SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.sportmonks.core import HourlyRateLimit
from tally.sim.sportmonks.cricsheet import InvalidMatchFile, bundled_match, read_match
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.sim.sportmonks.simulator import SportMonksSimulator

SPORTMONKS_PORT: Final = 8103
COGNITO_PORT: Final = 8104
REFRESH_SECONDS: Final = 0.5
UNLIMITED: Final = 10**9

Files = Annotated[
    list[Path] | None,
    typer.Option("--match", help="A match file in Cricsheet's JSON format; may be repeated."),
]
Speed = Annotated[
    float,
    typer.Option(min=0.001, help="Minutes of the match in one of ours; inf: a ball at every look."),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Where SportMonks is simulated.")]
CognitoPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Where people's tokens are issued.")
]
Limit = Annotated[int, typer.Option(min=1, help="Requests an hour for each kind of resource.")]
Schedule = Annotated[
    int,
    typer.Option(
        min=0, max=100_000, help="Coming matches on the programme besides, that nobody plays."
    ),
]
Seconds = Annotated[
    float | None, typer.Option(min=0, help="Stop by itself after so long; without it, at Ctrl-C.")
]


def cricket(
    *,
    match: Files = None,
    speed: Speed = 60,
    port: Port = SPORTMONKS_PORT,
    cognito_port: CognitoPort = COGNITO_PORT,
    limit: Limit = UNLIMITED,
    schedule: Schedule = 0,
    seconds: Seconds = None,
) -> None:
    """Simulate SportMonks with recorded matches, and the issuer of the app's users."""
    matches = [_read(path) for path in match] if match else [bundled_match()]
    clock = SystemClock()

    async def run(stop: asyncio.Event) -> None:
        sportmonks = SportMonksSimulator(clock, limits=HourlyRateLimit(clock, limit))
        for each in matches:
            sportmonks.add(each, **_pace(speed))
        sportmonks.schedule(schedule)
        async with (
            sportmonks.serving(port=port),
            CognitoSimulator(clock).serving(port=cognito_port) as cognito,
        ):
            typer.echo(
                f"SportMonks is simulated at {sportmonks.api}, with the token {sportmonks.api_token}",
                err=True,
            )
            typer.echo(
                f"Tokens are issued by {cognito.issuer} for the client {cognito.client_id}",
                err=True,
            )
            leagues = sorted({str(each.league_id) for each in matches})
            typer.echo(
                f"To follow every ball, set TALLY_CRICKET_MARQUEE_LEAGUES={','.join(leagues)}",
                err=True,
            )
            await watch(sportmonks, clock, stop, seconds)

    try:
        run_until_stopped(run)
    except ListenError as error:
        typer.echo(f"{error}. Choose another with --port and --cognito-port.", err=True)
        raise typer.Exit(2) from error


async def watch(
    sportmonks: SportMonksSimulator, clock: Clock, stop: asyncio.Event, seconds: float | None
) -> None:
    """Show the matches until it is time to stop, and end with the sums."""
    console = Console()
    end = None if seconds is None else clock.monotonic() + seconds
    with Live(rendered(sportmonks), console=console, auto_refresh=False, transient=True) as live:
        while not stop.is_set() and (end is None or clock.monotonic() < end):
            await _pause(clock, stop, REFRESH_SECONDS)
            live.update(rendered(sportmonks), refresh=console.is_terminal)
    console.print(summary(sportmonks), soft_wrap=True)


async def _pause(clock: Clock, stop: asyncio.Event, seconds: float) -> None:
    waits = {asyncio.create_task(stop.wait()), asyncio.create_task(clock.sleep(seconds))}
    _, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()


def _pace(speed: float) -> dict[str, Any]:
    return {"per_poll": 1} if math.isinf(speed) else {"speed": speed}


def _read(path: Path) -> Match:
    try:
        return read_match(path.read_bytes(), path.stem)
    except (OSError, InvalidMatchFile) as error:
        typer.echo(f"{path} holds no match: {error}", err=True)
        raise typer.Exit(2) from error


def rendered(sportmonks: SportMonksSimulator) -> Group:
    table = Table(title=f"{len(sportmonks.broadcasts)} matches at {sportmonks.api}")
    for column in ("Id", "Match", "Status", "Score", "Last ball"):
        table.add_column(column)
    for broadcast in sportmonks.broadcasts.values():
        table.add_row(*_row(broadcast))
    return Group(table, Text(summary(sportmonks)))


def summary(sportmonks: SportMonksSimulator) -> str:
    """The sums in one line."""
    over = sum(broadcast.progress.is_over for broadcast in sportmonks.broadcasts.values())
    polls = sportmonks.faults.count("/api/v2.0/livescores")
    requests = len(sportmonks.faults.requests)
    return f"{over} of {len(sportmonks.broadcasts)} matches are over; {requests} requests, {polls} of them for live scores"


def _row(broadcast: MatchPlayback) -> tuple[str, ...]:
    fixture = broadcast.fixture()
    home, away = broadcast.match.teams
    scores = "; ".join(
        f"{run['score']}/{run['wickets']} ({run['overs']})" for run in fixture["runs"]
    )
    last = fixture["balls"][-1] if fixture["balls"] else None
    told = (
        ""
        if last is None
        else f"{last['ball']} {last['bowler']['fullname']} to {last['batsman']['fullname']}: {last['score']['name']}"
    )
    return (
        str(broadcast.match.id),
        f"{home} v {away}",
        fixture["note"] or fixture["status"],
        scores,
        told,
    )
