"""Startup time of the command line, compared with an empty typer program."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from bench.rounds import Line, take_turns

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
    """Measure `tally --help` and `tally --version` in processes of their own."""
    with tempfile.TemporaryDirectory() as directory:
        empty = Path(directory) / "empty.py"
        empty.write_text(EMPTY_PROGRAM, encoding="utf-8")
        for option in ("--help", "--version"):

            async def run_tally(option: str = option) -> int:
                return await _run("-m", "tally.cli", option)

            async def run_empty() -> int:
                return await _run(str(empty), "--help")

            ours, peer, ratio = await take_turns(run_tally, run_empty, rounds)
            yield Line(
                section="startup",
                what=f"tally {option}",
                microseconds=ours,
                peer="empty typer program, --help",
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
