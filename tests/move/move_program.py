"""Moves the tables of these tests until it is stopped: `move_program.py TO`.

Settings come from the environment, as for `tally move start`.
"""

import asyncio
import os
import sys
from typing import Final

from tally.cli.move_progress import shown_progress
from tally.kit.clock import SystemClock
from tally.kit.server import run_until_stopped
from tally.kit.tasks import running_loops
from tally.move.mover import Mover
from tally.move.moves import moving_process, start_move
from tally.move.pace import Pace
from tally.move.sides import open_sides
from tally.move.state import SideName
from tally.settings import read_settings
from tally.store.schema import KEYS_ONLY, GlobalIndex, N, S, Table

NOTES: Final = Table("moved-notes", partition=S("id"))
COUNTERS: Final = Table(
    "moved-counters",
    partition=S("group"),
    sort=N("number"),
    indexes=(GlobalIndex("by-color", partition=S("color"), projection=KEYS_ONLY),),
    stream="NEW_IMAGE",
)
EXPIRING: Final = Table("moved-expiring", partition=S("id"), sort=S("at"), ttl="expires")
TABLES: Final = (NOTES, COUNTERS, EXPIRING)


def move(to: SideName) -> None:
    settings, clock = read_settings(os.environ), SystemClock()

    async def run(stop: asyncio.Event) -> None:
        async with open_sides(settings, clock) as sides:
            state = await start_move(sides, TABLES, to, clock, overwrite=False)
            mover = Mover(sides, state, TABLES, Pace(clock, None))
            async with running_loops(shown_progress(mover, clock, str)):
                await mover.run(stop)

    with moving_process(settings.data_dir):
        run_until_stopped(run)


if __name__ == "__main__":
    move("dynamodb" if sys.argv[1] == "dynamodb" else "embedded")
