"""Shared parts of the `tally sim` commands: ports, options, the live display and error reporting.

end = asyncio.create_task(wait_for_end(clock, seconds, stop))
await display_until(end, console, clock, draw)
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, Final, TypeAlias

import typer
from pyreqwest.client import Client, ClientBuilder
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from tally.errors import TallyError
from tally.kit.clock import Clock

# Default ports. The demo uses the same ones, so that its simulators stay at the same addresses.
STRAVA_PORT: Final = 8101
OIDC_PORT: Final = 8102
SPORTMONKS_PORT: Final = 8103
COGNITO_PORT: Final = 8104
MAIL_PORT: Final = 8105
APNS_PUSH_PORT: Final = 8121
APNS_MANAGE_PORT: Final = 8122
APNS_CONTROL_PORT: Final = 8123

REFRESH_SECONDS: Final = 0.5
MAX_CONNECTIONS: Final = 256
TIMEOUT: Final = timedelta(seconds=30)

ServerUrl = Annotated[str, typer.Option(help="Server URL, for example http://127.0.0.1:8080.")]
Seconds = Annotated[
    float | None, typer.Option(min=0, help="Stop after this many seconds; default: at Ctrl-C.")
]
ListenPort = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")]

StatRows: TypeAlias = Sequence[tuple[str, str]]


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print the message of a TallyError and exit with status 2."""
    try:
        yield
    except TallyError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(2) from error


def build_client() -> Client:
    """An HTTP client for a fleet: pooled, with a timeout, without redirects."""
    builder = ClientBuilder().max_connections(MAX_CONNECTIONS).timeout(TIMEOUT)
    return builder.follow_redirects(False).build()


async def wait_for_end(clock: Clock, seconds: float | None, *events: asyncio.Event) -> None:
    """Wait for the first of the events, for at most `seconds`."""
    waits: set[asyncio.Task[Any]] = {asyncio.create_task(event.wait()) for event in events}
    if seconds is not None:
        waits.add(asyncio.create_task(clock.sleep(seconds)))
    _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()


async def display_until(
    end: asyncio.Task[None],
    console: Console,
    clock: Clock,
    draw: Callable[[], Awaitable[RenderableType]],
    interval: float = REFRESH_SECONDS,
) -> None:
    """Redraw every `interval` seconds until `end` is done, then erase the display."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not end.done():
            live.update(await draw(), refresh=console.is_terminal)
            pause = asyncio.create_task(clock.sleep(interval))
            await asyncio.wait({end, pause}, return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()


def stats_table(title: str, url: str, rows: StatRows, seconds: float) -> Table:
    """The statistics of a fleet as a two-column table."""
    table = Table(title, url, title=f"{seconds:,.0f} s", title_justify="right", show_lines=False)
    for name, value in rows:
        table.add_row(name, value)
    return table


def stats_line(rows: StatRows, seconds: float) -> str:
    """The statistics of a fleet on one line, for the end of the run and for pipes."""
    return "; ".join(f"{name.lower()}: {value}" for name, value in rows) + f"; {seconds:,.1f} s"
