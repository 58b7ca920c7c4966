"""After `kill -9` at any moment, no acknowledged write is lost and no transaction is partial.

Indexes match their tables.

The child (`crash_writers`) is killed after a number of acknowledgements, and the next one continues
in the same directory, so recovery itself is interrupted too.
"""

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from tally.store.api import Put
from tally.store.sqlite import open_sqlite
from tally.store.sqlite.files import FILE_NAME
from tests.faults import crash_steps
from tests.faults.audit import audit
from tests.faults.child_process import Child, started
from tests.faults.crash_checks import Progress, check, follow
from tests.faults.crash_steps import ACCOUNTS, READINGS, READINGS_LATER, RIGHT, TABLES

ROUNDS = 8


async def create_tables(directory: Path) -> None:
    async with open_sqlite(directory) as engine:
        for table in TABLES:
            await engine.create_table(table)
        for number in range(crash_steps.PAIRS):
            await engine.put(Put(RIGHT, {"id": f"pair-{number}/taken"}))
        for number in range(crash_steps.ACCOUNTS_COUNT):
            await engine.put(
                Put(
                    ACCOUNTS,
                    {
                        **crash_steps.account(number),
                        "kind": "account",
                        "balance": crash_steps.START_BALANCE,
                    },
                )
            )


async def kill(child: Child, progress: Progress) -> None:
    """Kill the child and process its remaining output."""
    child.kill()
    for line in await child.rest():
        progress.add_line(line)


async def crash_while_writing(
    child: Child, progress: Progress, rng: random.Random, _directory: Path
) -> None:
    await follow(child, progress, rng.randrange(1, 700))


async def crash_while_declaring(
    child: Child, progress: Progress, rng: random.Random, _directory: Path
) -> None:
    """Kill during or shortly after the transaction that drops and fills indexes."""
    await follow(child, progress, rng.randrange(1, 300))
    command = rng.choice(("ensure later", "ensure first"))
    await child.send(command)
    while (line := await child.line()) != f"begin {command}":
        progress.add_line(line)
    for _ in range(rng.choice((0, 0, 1, 30))):
        progress.add_line(await child.line())


async def crash_while_closing(
    child: Child, progress: Progress, rng: random.Random, directory: Path
) -> None:
    """Kill between the last commits and the end of the last checkpoint."""
    await follow(child, progress, rng.randrange(1, 700))
    database = directory / FILE_NAME
    await child.send("close")
    while (line := await child.line()) != "begin close":
        progress.add_line(line)
    if rng.random() < 0.7:
        before = database.stat().st_mtime_ns
        while database.stat().st_mtime_ns == before and child.running:
            pass


CRASHES = (crash_while_writing, crash_while_writing, crash_while_declaring, crash_while_closing)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
async def test_a_killed_process_loses_no_acknowledged_write(tmp_path: Path, part: int) -> None:
    """Eight crashes of all kinds on one directory."""
    rng = random.Random()
    directory = tmp_path / f"{rng.getrandbits(64):x}"
    progress = Progress()
    await create_tables(directory)
    for round_number in range(ROUNDS):
        async with started("crash_writers", str(directory)) as child:
            await child.send(progress.as_json())
            await child.expect("open")
            await rng.choice(CRASHES)(child, progress, rng, directory)
            await kill(child, progress)
        if rng.random() < 0.7 or round_number == ROUNDS - 1:
            check(await audit(directory), progress)
    shutil.rmtree(directory)  # a soak run creates many of these


BACKFILLED = 4_000


@pytest.mark.soak
async def test_a_process_killed_during_a_backfill_leaves_the_old_or_the_new_table(
    tmp_path: Path,
) -> None:
    """Killed at the start, or when the commit appears in the log."""
    rng = random.Random()
    directory = tmp_path / f"{rng.getrandbits(64):x}"
    items = [
        dict(crash_steps.batch_state("batch-0", 1, 1) or {}, id=f"item-{number}", retired=number)
        for number in range(BACKFILLED)
    ]
    await create_tables(directory)
    async with open_sqlite(directory) as engine:
        await asyncio.gather(*(engine.put(Put(READINGS, item)) for item in items))
    for wait in (False, True, True, True):
        command = (
            "ensure first"
            if await declared(directory) == set(READINGS_LATER.by_name)
            else "ensure later"
        )
        async with started("crash_writers", str(directory), "idle") as child:
            await child.expect("open")
            before = log_size(directory)
            await child.send(command)
            await child.expect(f"begin {command}")
            while wait and log_size(directory) == before and child.running:
                pass
            child.kill()
        found = await audit(directory)
        assert {item["id"] for item in found["readings"]} == {item["id"] for item in items}
        assert await declared(directory) in (set(READINGS.by_name), set(READINGS_LATER.by_name))


async def declared(directory: Path) -> set[str]:
    """The names of the table's indexes."""
    async with open_sqlite(directory) as engine:
        return set((await engine.describe_table(READINGS.name)).by_name)


def log_size(directory: Path) -> int:
    log = directory / f"{FILE_NAME}-wal"
    return log.stat().st_size if log.exists() else 0
