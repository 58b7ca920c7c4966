"""Programs that are recorded until the power fails.

    python -m tests.faults.power_loss_program write DIRECTORY
    python -m tests.faults.power_loss_program open DIRECTORY
    python -m tests.faults.power_loss_program backup DIRECTORY FILE
    python -m tests.faults.power_loss_program restore FILE DIRECTORY
    python -m tests.faults.power_loss_program postgres DIRECTORY

`write` is `crash_writers`. `open` opens the store, creates or upgrades its file, writes pairs of
items and closes it. Both have a short log, so that checkpoints and restarts of the log are part of
a short recording.
"""

import asyncio
import sys
from pathlib import Path

from tally.backup.create import create_backup
from tally.backup.restore import restore_backup
from tally.embedded.postgres import open_postgres
from tally.kit.clock import SystemClock
from tally.store.api import Put, Transaction
from tally.store.schema import S, Table
from tally.store.sqlite import checkpoint, open_sqlite
from tests.faults import crash_writers
from tests.faults.child_process import say

FIRST, SECOND = Table("first", partition=S("id")), Table("second", partition=S("id"))
PAIRS = 12


def shorten_log(pages: int) -> None:
    """Restart the log after so many pages."""
    checkpoint._CHECKPOINT_PAGES = pages // 3
    checkpoint._RESTART_PAGES = pages
    checkpoint._MAX_REMAINING_PAGES = pages // 4


async def open_and_write(directory: Path) -> None:
    """Write pairs, each in one transaction."""
    async with open_sqlite(directory) as engine:
        for table in (FIRST, SECOND):
            await engine.ensure_table(table)
        for number in range(PAIRS):
            pair = {"id": f"pair-{number}", "text": "x" * 3_000 * (number % 3)}
            await engine.transact(Transaction((Put(FIRST, pair), Put(SECOND, pair))))
            say(f"did {pair['id']}")


async def back_up(directory: Path, target: Path) -> None:
    await create_backup(directory, target, SystemClock())
    say("did backup")


async def restore(source: Path, directory: Path) -> None:
    await restore_backup(source, directory, SystemClock(), trust=True)
    say("did restore")


async def start_postgres(directory: Path) -> None:
    async with open_postgres(directory, SystemClock()):
        say("did start")


async def main(command: str, *paths: Path) -> None:
    if command == "write":
        shorten_log(150)
        await crash_writers.main(paths[0], idle=False)
    elif command == "open":
        shorten_log(24)
        await open_and_write(paths[0])
    elif command == "backup":
        await back_up(*paths)
    elif command == "postgres":
        await start_postgres(*paths)
    else:
        await restore(*paths)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(Path, sys.argv[2:])))
