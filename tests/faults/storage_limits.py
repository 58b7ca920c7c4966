"""A child process without disk space or without write permission.

    python -m tests.faults.storage_limits full DIRECTORY mount    on a private, small file system
    python -m tests.faults.storage_limits full DIRECTORY limit    with a limit on the file size
    python -m tests.faults.storage_limits open DIRECTORY          as an unprivileged user

It prints its report as one line of JSON.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tally.store.api import Get, Put, Transaction, Update
from tally.store.errors import StoreError
from tally.store.expressions import F
from tally.store.schema import GlobalIndex, N, S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.faults.audit import audit, audit_table
from tests.faults.child_process import say

NOBODY = 65534
SHORT = 5_000
SPACE = 4 * 1024 * 1024
NOTES = Table(
    "notes",
    partition=S("id"),
    indexes=(GlobalIndex("by-kind", partition=S("kind"), sort=N("number")),),
)
NOTES_LATER = Table(
    "notes", partition=S("id"), indexes=(GlobalIndex("by-number", partition=N("number")),)
)


class Report(msgspec.Struct):
    """What happened without space, and after."""

    acknowledged: int = 0
    rejected: list[str] = msgspec.field(default_factory=list)
    while_full: dict[str, str] = msgspec.field(default_factory=dict)
    lost_while_full: int = 0
    lost_after_reopening: int = 0
    lost_at_the_end: int = 0
    unasked_at_the_end: int = 0
    half_transactions: int = 0
    written_after: int = 0


def make_note(number: int) -> dict[str, Any]:
    """A long note, or a short one from number 5000 on."""
    text = "x" * (9_000 if number < SHORT else 9)
    return {"id": f"note-{number}", "kind": f"kind-{number % 3}", "number": number, "text": text}


async def outcome(call: Any) -> str:
    """The outcome of a call: `done`, or the name of its error."""
    try:
        await call
    except StoreError as error:
        return type(error).__name__
    return "done"


async def fill(engine: SqliteEngine, report: Report) -> set[str]:
    """Put notes until not even a short one fits; return the acknowledged ids."""
    acknowledged: set[str] = set()
    for start, together in ((0, 40), (SHORT, 1)):
        before, number = len(report.rejected), start
        while len(report.rejected) == before:
            items = [make_note(number + position) for position in range(together)]
            number += together
            ends = await asyncio.gather(*(outcome(engine.put(Put(NOTES, item))) for item in items))
            acknowledged |= {
                item["id"] for item, end in zip(items, ends, strict=True) if end == "done"
            }
            report.rejected += [end for end in ends if end != "done"]
    report.acknowledged = len(acknowledged)
    return acknowledged


async def try_all(engine: SqliteEngine) -> dict[str, str]:
    """Try every kind of write without space."""
    pair = (Put(NOTES, make_note(10_001)), Put(NOTES, make_note(10_002)))
    late = Update(NOTES, {"id": "note-0"}, (F("text").set("y" * 300_000),))
    return {
        "put": await outcome(engine.put(Put(NOTES, {**make_note(10_000), "text": "x" * 300_000}))),
        "update": await outcome(engine.update(late)),
        "transaction": await outcome(engine.transact(Transaction((*pair, late)))),
        "ensure": await outcome(engine.ensure_table(NOTES_LATER)),
    }


async def missing(engine: SqliteEngine, wanted: set[str]) -> int:
    """Count the notes that cannot be read as written."""
    found = [(await engine.get(Get(NOTES, {"id": note_id}))).item for note_id in sorted(wanted)]
    return sum(
        item != make_note(int(note_id.split("-")[1]))
        for note_id, item in zip(sorted(wanted), found, strict=True)
    )


async def run_full(
    directory: Path, fill_up: Callable[[], None], make_room: Callable[[], None]
) -> Report:
    report = Report()
    async with open_sqlite(directory) as engine:
        await engine.create_table(NOTES)
        await asyncio.gather(*(engine.put(Put(NOTES, make_note(number))) for number in range(5)))
        fill_up()
        acknowledged = await fill(engine, report)
        report.while_full = await try_all(engine)
        report.lost_while_full = await missing(engine, acknowledged)
        await audit_table(engine, await engine.describe_table(NOTES.name))
    report.while_full["reopen"] = await outcome(_reopen(directory, acknowledged, report))
    make_room()
    async with open_sqlite(directory) as engine:
        report.lost_at_the_end = await missing(engine, acknowledged)
        ends = await asyncio.gather(
            *(outcome(engine.put(Put(NOTES, make_note(20_000 + number)))) for number in range(50))
        )
        report.written_after = ends.count("done")
        await engine.ensure_table(NOTES_LATER)
    found = {item["id"] for item in (await audit(directory))["notes"]}
    report.unasked_at_the_end = len(
        found - acknowledged - {f"note-{20_000 + number}" for number in range(50)}
    )
    report.half_transactions = len({"note-10001", "note-10002"} & found)
    return report


async def _reopen(directory: Path, acknowledged: set[str], report: Report) -> None:
    async with open_sqlite(directory) as engine:
        report.lost_after_reopening = await missing(engine, acknowledged)


def full(directory: Path, how: str) -> None:
    """Run the scenario on a small file system, or with a limit on the file size."""
    if how == "mount":
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SPACE * 2}", "tally-test", directory], check=True
        )
        ballast = directory / "ballast"
        ballast.write_bytes(b"")
        report = asyncio.run(run_full(directory, lambda: _fill_with(ballast), ballast.unlink))
    else:
        report = asyncio.run(
            run_full(directory, lambda: _limit(SPACE // 2), lambda: _limit(resource.RLIM_INFINITY))
        )
    say(msgspec.json.encode(report).decode())


def _fill_with(ballast: Path) -> None:
    ballast.write_bytes(b"x" * SPACE)


def _limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


async def _open_and_write(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        await engine.ensure_table(NOTES)


def open_as_nobody(directory: Path) -> None:
    """Report how opening ends without write permission."""
    with tempfile.TemporaryDirectory() as own:
        asyncio.run(
            _open_and_write(Path(own))
        )  # loads every module, which the other user may not be allowed to read
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        asyncio.run(_open_and_write(directory))
    except StoreError as error:
        say(f"{type(error).__name__}: {error}")
    else:
        say("opened")


if __name__ == "__main__":
    if sys.argv[1] == "full":
        full(Path(sys.argv[2]), sys.argv[3])
    else:
        open_as_nobody(Path(sys.argv[2]))
