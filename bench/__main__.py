"""Runs the benchmarks, prints a table, and writes the figures as JSON."""

import platform
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import apsw
import msgspec
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench.collect import events, recomputes
from bench.cricket import cricket
from bench.devices import SECONDS, histories, ingestion, lasting
from bench.live import live
from bench.push import pushes
from bench.rounds import Line
from bench.scoreboard import scoreboard
from bench.startup import startup
from bench.store import beside_dynamodb_local, beside_raw, growth

_COLUMNS = ("what", "µs an operation", "beside", "µs an operation", "ratio", "to reach", "")


def main(
    *,
    json: Annotated[Path, typer.Option(help="Where the figures go.")] = Path("bench.json"),
    only: Annotated[
        str,
        typer.Option(
            help="Only the parts named: raw, growth, dynamodb, devices, history, collect…, scoreboard, push, live, cricket, startup."
        ),
    ] = "",
    rounds: Annotated[int, typer.Option(min=3, help="Turns that each pair of figures takes.")] = 9,
    items: Annotated[
        int, typer.Option(min=10_000, help="The larger number of items of the growth.")
    ] = 1_000_000,
    history: Annotated[
        int, typer.Option(min=10_000, help="The longer history of a device.")
    ] = 1_000_000,
    players: Annotated[
        int, typer.Option(min=1_000, help="How many players the scoreboard has.")
    ] = 1_000_000,
    fixtures: Annotated[
        int, typer.Option(min=1_000, max=10_000, help="How many fixtures cricket syncs.")
    ] = 10_000,
    seconds: Annotated[
        int, typer.Option(min=1, help="How long each rate of devices and collect is to be held.")
    ] = SECONDS,
    hours: Annotated[
        float,
        typer.Option(min=0, help="How many hours' worth of requests devices take, for its memory."),
    ] = 0,
) -> None:
    """Measure the store on this machine, each figure beside a peer in the same run."""
    console = Console()
    begun = time.monotonic()
    parts = {
        "raw": beside_raw(rounds),
        "growth": growth(rounds, items),
        "devices": ingestion(seconds),
        "history": histories(rounds, history),
        "collect": events(seconds),
        "collect-recompute": recomputes(rounds),
        "scoreboard": scoreboard(seconds, players),
        "push": pushes(rounds),
        "live": live(rounds),
        "cricket": cricket(seconds, fixtures),
        "startup": startup(rounds),
    }
    if hours:
        parts["devices-hours"] = lasting(hours)
    lines = uvloop.run(_collect(console, only, rounds, parts))
    figures = {
        "machine": {
            "python": platform.python_version(),
            "sqlite": apsw.sqlite_lib_version(),
            "system": platform.platform(),
        },
        "seconds": round(time.monotonic() - begun, 1),
        "lines": [msgspec.to_builtins(line) for line in lines],
    }
    json.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    console.print(f"{len(lines)} lines in {figures['seconds']} s, also in {json}")
    if any(line.met is False for line in lines):
        console.print(
            "Not every goal was met in this run: on a busy machine, run it again before you believe it."
        )


async def _collect(
    console: Console, only: str, rounds: int, parts: dict[str, AsyncIterator[Line]]
) -> list[Line]:
    if shutil.which("java") and shutil.which("npm"):
        parts["dynamodb"] = beside_dynamodb_local(rounds)
    else:
        console.print("DynamoDB Local is not measured: it needs Java and npm.")
    lines: list[Line] = []
    for name, part in parts.items():
        if only in name:
            found = [line async for line in part]
            _show(console, found)
            lines += found
    return lines


def _show(console: Console, lines: list[Line]) -> None:
    table = Table(*_COLUMNS, title=lines[0].section, title_justify="left")
    for line in lines:
        verdict = "" if line.met is None else ("yes" if line.met else "no")
        figures = (
            f"{line.microseconds:,.1f}",
            line.peer,
            f"{line.peer_microseconds:,.1f}",
            f"{line.ratio:.3g}",
        )
        table.add_row(line.what, *figures, line.goal, verdict)
    console.print(table)
    for line in lines:
        if line.note:
            console.print(f"  {line.what}: {line.note}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
