"""The matches of the demo: another one is always live or about to start, under an id of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tally.cricket.model.results import FINAL_AFTER_MS
from tally.kit.clock import ManualClock
from tally.sim.demo.match_schedule import CHECK_SECONDS, MatchSchedule
from tally.sim.sportmonks.cricsheet import bundled_match
from tally.sim.sportmonks.simulator import SportMonksSimulator


@contextlib.asynccontextmanager
async def running_schedule() -> AsyncIterator[tuple[SportMonksSimulator, ManualClock]]:
    clock = ManualClock()
    sportmonks = SportMonksSimulator(clock)
    schedule = MatchSchedule(sportmonks, (bundled_match(),), clock)
    schedule.start()
    task = asyncio.create_task(schedule.run())
    await asyncio.sleep(0)
    yield sportmonks, clock
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_no_match_gets_the_id_of_another_one() -> None:
    """A finished match is replaced; the running one continues from its position."""
    async with running_schedule() as (sportmonks, clock):
        first, second = sportmonks.playbacks
        running = sportmonks.playback(second)
        running.deliver(10)
        matches = [first, second]
        for finished in range(3):
            sportmonks.playback(matches[finished]).finish()
            while not sportmonks.playbacks.keys() - matches:
                await clock.advance(CHECK_SECONDS)
            matches += sportmonks.playbacks.keys() - matches
            assert len(matches) == finished + 3
            if finished == 0:
                assert sportmonks.playback(second) is running


async def test_a_finished_match_is_available_while_its_result_is_confirmed() -> None:
    async with running_schedule() as (sportmonks, clock):
        first = min(sportmonks.playbacks)
        sportmonks.playback(first).finish()
        await clock.advance(FINAL_AFTER_MS / 1000)
        assert first in sportmonks.playbacks
        while first in sportmonks.playbacks:
            await clock.advance(CHECK_SECONDS)
