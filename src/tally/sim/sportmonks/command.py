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
from rich.console import Console
from rich.live import Live

from tally.kit.clock import Clock, SystemClock
from tally.kit.server import ListenError, run_until_stopped
from tally.sim.cognito.pool import Cognito
from tally.sim.sportmonks.cricsheet import NotAMatch, read_match
from tally.sim.sportmonks.display import rendered, summary
from tally.sim.sportmonks.limits import HourlyLimits
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.shipped import shipped_match
from tally.sim.sportmonks.simulator import SportMonks

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
    matches = [_read(path) for path in match] if match else [shipped_match()]
    clock = SystemClock()

    async def run(stop: asyncio.Event) -> None:
        sportmonks = SportMonks(clock, limits=HourlyLimits(clock, limit))
        for each in matches:
            sportmonks.add(each, **_pace(speed))
        sportmonks.schedule(schedule)
        async with (
            sportmonks.serving(port=port),
            Cognito(clock).serving(port=cognito_port) as cognito,
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
    sportmonks: SportMonks, clock: Clock, stop: asyncio.Event, seconds: float | None
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
    except (OSError, NotAMatch) as error:
        typer.echo(f"{path} holds no match: {error}", err=True)
        raise typer.Exit(2) from error
