"""Runs the benchmarks, prints a table, and writes the results as JSON."""

import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import apsw
import msgspec
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from bench.boards import named_boards
from bench.collect import events, recomputes
from bench.collect_import import imports
from bench.cricket import cricket
from bench.devices import SECONDS, endurance, histories, ingestion
from bench.devices_peers import compare_with_databases
from bench.dynamodb import endpoint
from bench.http import http
from bench.live import live
from bench.load import RequestsFailed
from bench.long_charts import long_charts
from bench.long_reads import long_reads
from bench.poller import poller
from bench.push import pushes
from bench.rounds import Line
from bench.scoreboard import scoreboard
from bench.scoreboard_closed_loop import closed_loops
from bench.startup import startup
from bench.store import compare_with_dynamodb_local, compare_with_raw, measure_growth
from bench.streams import measure_delays, measure_streams

_COLUMNS = ("benchmark", "µs/op", "baseline", "µs/op", "ratio", "target", "met")


Names = Annotated[
    str,
    typer.Option(
        help="Run the parts whose names contain this: raw, growth, devices, history, reads, stream,"
        " devices-peers, collect, dynamodb (needs Java, npm and wrk), http, scoreboard, boards,"
        " push, live, cricket, startup."
    ),
]
Seconds = Annotated[
    int,
    typer.Option(min=1, help="Seconds of each constant-rate measurement of devices and collect."),
]
Hours = Annotated[
    float,
    typer.Option(min=0, help="Hours' worth of requests for the memory benchmark of devices."),
]


def main(
    *,
    json: Annotated[Path, typer.Option(help="File for the results.")] = Path("bench.json"),
    only: Names = "",
    rounds: Annotated[int, typer.Option(min=3, help="Rounds per comparison.")] = 9,
    items: Annotated[
        int,
        typer.Option(
            min=10_000, help="Number of items in the larger table of the growth benchmark."
        ),
    ] = 1_000_000,
    history: Annotated[
        int, typer.Option(min=10_000, help="Number of readings in the longer device history.")
    ] = 1_000_000,
    players: Annotated[
        int, typer.Option(min=1_000, help="Number of scoreboard players.")
    ] = 1_000_000,
    fixtures: Annotated[
        int, typer.Option(min=1_000, max=10_000, help="Number of fixtures that cricket syncs.")
    ] = 10_000,
    seconds: Seconds = SECONDS,
    hours: Hours = 0,
) -> None:
    """Run the benchmarks, each against a baseline in the same run."""
    console = Console()
    started, load = time.monotonic(), os.getloadavg()[0]
    parts = {
        "raw": compare_with_raw(rounds),
        "growth": measure_growth(rounds, items),
        "stream-cost": measure_streams(rounds),
        "stream-delay": measure_delays(rounds),
        "devices": ingestion(seconds),
        "devices-peers": compare_with_databases(),
        "history": histories(rounds, history),
        "reads": long_reads(rounds, seconds),
        "charts": long_charts(),
        "collect": events(seconds),
        "collect-recompute": recomputes(rounds),
        "collect-import": imports(),
        "http": http(rounds),
        "http-scoreboard": closed_loops(rounds),
        "scoreboard": scoreboard(seconds, players),
        "boards": named_boards(seconds, players),
        "push": pushes(rounds),
        "live": live(rounds),
        "poller": poller(rounds),
        "cricket": cricket(seconds, fixtures),
        "startup": startup(rounds),
    }
    if hours:
        parts["devices-hours"] = endurance(hours)
    parts |= _emulator_parts(rounds)
    chosen = {name: part for name, part in parts.items() if only in name}
    lines, failed = uvloop.run(run_parts(console, chosen))
    _write_results(json, time.monotonic() - started, load, lines)
    if failed:
        raise typer.Exit(1)


def _emulator_parts(rounds: int) -> dict[str, AsyncIterator[Line]]:
    """Return the parts that compare with emulators, if their programs are installed."""
    parts: dict[str, AsyncIterator[Line]] = {}
    if shutil.which("java") and shutil.which("npm"):
        parts["dynamodb"] = compare_with_dynamodb_local(rounds)
        if shutil.which("wrk") and shutil.which("node"):
            parts["dynamodb-endpoint"] = endpoint(rounds)
    return parts


def _processor() -> str:
    """Return the name of the processor, or its architecture where the system has no name for it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(": ")[2]
    return platform.machine()


def _write_results(path: Path, seconds: float, load: float, lines: list[Line]) -> None:
    results = {
        "machine": {
            "python": platform.python_version(),
            "sqlite": apsw.sqlite_lib_version(),
            "system": platform.platform(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
            "load": round(load, 1),
        },
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "arguments": shlex.join(sys.argv[1:]),
        "seconds": round(seconds, 1),
        "lines": [msgspec.to_builtins(line) for line in lines],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


async def run_parts(
    console: Console, parts: Mapping[str, AsyncIterator[Line]]
) -> tuple[list[Line], list[str]]:
    """Return the results, and the parts that ended because requests failed."""
    lines: list[Line] = []
    failed: list[str] = []
    for name, part in parts.items():
        results: list[Line] = []
        try:
            async for line in part:
                results.append(line)  # noqa: PERF401  (keeps the lines before a failure)
        except RequestsFailed as error:
            console.print(f"{name}: {error}", soft_wrap=True)
            failed.append(name)
        if results:
            _print_table(console, results)
        lines += results
    if any(line.met is False for line in lines):
        console.print("Some targets were missed; on a busy machine, run the benchmarks again.")
    return lines, failed


def _print_table(console: Console, lines: list[Line]) -> None:
    table = Table(*_COLUMNS, title=lines[0].section, title_justify="left")
    for line in lines:
        verdict = "" if line.met is None else ("yes" if line.met else "no")
        measurements = (
            f"{line.microseconds:,.1f}",
            line.peer,
            f"{line.peer_microseconds:,.1f}",
            f"{line.ratio:.3g}",
        )
        table.add_row(line.what, *measurements, line.goal, verdict)
    console.print(table)
    for line in lines:
        if line.note:
            console.print(f"  {line.what}: {line.note}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
