"""What the commands of `tally sim` do at a terminal: show how things go until it is time to stop, and explain what went wrong.

ending = asyncio.create_task(until(clock, seconds, stop))
await show_until(ending, console, clock, drawn)
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from tally.errors import TallyError
from tally.kit.clock import Clock

REFRESH_SECONDS: Final = 0.5


@contextmanager
def explained() -> Iterator[None]:
    """End the program with one sentence where something went wrong that it knows of."""
    try:
        yield
    except TallyError as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(2) from error


async def until(clock: Clock, seconds: float | None, *events: asyncio.Event) -> None:
    """Wait for the first of some events, and for so many seconds at most."""
    waits: set[asyncio.Task[Any]] = {asyncio.create_task(event.wait()) for event in events}
    if seconds is not None:
        waits.add(asyncio.create_task(clock.sleep(seconds)))
    _, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()


async def show_until(
    ending: asyncio.Task[None],
    console: Console,
    clock: Clock,
    drawn: Callable[[], Awaitable[RenderableType]],
    every: float = REFRESH_SECONDS,
) -> None:
    """Draw anew again and again until the task `ending` is over; what was drawn then goes away."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not ending.done():
            live.update(await drawn(), refresh=console.is_terminal)
            pause = asyncio.create_task(clock.sleep(every))
            await asyncio.wait({ending, pause}, return_when=asyncio.FIRST_COMPLETED)
            pause.cancel()
