"""Startup time of the command line, compared with an empty typer program."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from bench.rounds import Line, measure_alternately

MAX_RATIO = 2.0
EMPTY_PROGRAM = """
import typer

cli = typer.Typer()


@cli.callback()
def options(version: bool = False) -> None: ...


@cli.command()
def run() -> None: ...


cli()
"""


async def startup(rounds: int) -> AsyncIterator[Line]:
    """Measure `tally --help` and `tally --version` in separate processes."""
    with tempfile.TemporaryDirectory() as directory:
        empty = Path(directory) / "empty.py"
        empty.write_text(EMPTY_PROGRAM, encoding="utf-8")
        # The empty program has no --version; running its command costs the same imports.
        for option, empty_option in (("--help", "--help"), ("--version", "run")):
            run_tally = partial(_run, "-m", "tally.cli", option)
            run_empty = partial(_run, str(empty), empty_option)
            ours, peer, ratio = await measure_alternately(run_tally, run_empty, rounds)
            yield Line(
                section="startup",
                what=f"tally {option}",
                microseconds=ours,
                peer=f"empty typer program, {empty_option}",
                peer_microseconds=peer,
                ratio=ratio,
                goal=f"at most {MAX_RATIO:g}",
                met=ratio <= MAX_RATIO,
            )


async def _run(*words: str) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait() != 0:
        raise RuntimeError(f"{' '.join(words)} failed")
    return 1
