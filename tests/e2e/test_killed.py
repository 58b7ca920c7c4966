"""Instances are killed in the middle of matches, as real processes, and started again: nothing is lost or told twice."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.pipeline import PipelineState, pipeline_state
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.service.queries.feeds import FeedCache
from tally.kit.clock import SystemClock
from tally.kit.ttl_cache import TTLCache
from tally.sim.sportmonks.simulator import SportMonksSimulator
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.e2e.servers import Server, servers
from tests.recorded import expect_scorecards, expected_events, recorded, told_events

LIVESCORES = "/api/v2.0/livescores"
LONGEST = 90
# A ball and what comes between, in seconds of ours.
STEP_SECONDS = 0.03


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens in another process."""
    async with asyncio.timeout(LONGEST):
        while not condition():  # noqa: ASYNC110  no event comes out of a process that may be killed
            await asyncio.sleep(0.01)


async def kill_and_start(
    server: Server, sportmonks: SportMonksSimulator, chance: random.Random
) -> None:
    """Let it see some polls, kill it at some moment of its work, and start it again."""
    polls = sportmonks.faults.count(LIVESCORES) + chance.randint(5, 20)
    await until(lambda: sportmonks.faults.count(LIVESCORES) >= polls)
    await asyncio.sleep(chance.random() * 0.05)  # any moment will do
    await server.kill()
    await server.start()


async def memories(store: Store, names: list[str]) -> list[PipelineState]:
    records = [await ActiveMatchRepository(store).get(name) for name in names]
    return [PipelineState() if record is None else pipeline_state(record) for record in records]


async def finish(store: Store, names: list[str]) -> list[PipelineState]:
    """What has been told of the matches, once their ends have been."""
    async with asyncio.timeout(LONGEST):
        while True:
            found = await memories(store, names)
            if all(
                any(event.kind == "match_end" for event in memory.published_events)
                for memory in found
            ):
                return found
            await asyncio.sleep(0.05)


async def play(sportmonks: SportMonksSimulator) -> None:
    """Let the matches go on at their own pace, whoever looks, until each has its result."""
    going = list(sportmonks.broadcasts.values())
    while going:
        for match in going:
            match.step()
        going = [match for match in going if not match.progress.is_over]
        await asyncio.sleep(STEP_SECONDS)


@pytest.mark.parametrize(
    ("names", "count", "kills"), [(["1304076", "1082625"], 1, 3), (["1175368"], 2, 2)]
)
async def test_killed_instances_lose_nothing_and_tell_nothing_twice(
    tmp_path: Path, names: list[str], count: int, kills: int
) -> None:
    """One instance alone, and two that share the matches."""
    clock, chance = SystemClock(), random.Random()
    async with SportMonksSimulator(clock).serving() as sportmonks:
        sportmonks.limits.hourly = 10**9
        for name in names:
            sportmonks.add(recorded(name))
        async with servers(tmp_path, sportmonks, count) as running:
            await until(lambda: sportmonks.faults.count(LIVESCORES) >= count)
            playing = asyncio.create_task(play(sportmonks))
            for _ in range(kills):
                await kill_and_start(chance.choice(running), sportmonks, chance)
            await playing
            async with open_sqlite(tmp_path / "data") as engine:
                await expect_all_told(Store(engine, clock), names)
            await until(lambda: all(server.is_up for server in running))
            for server in running:
                assert await server.stop() == 0, server.said()[-2000:]
            assert sum(server.starts for server in running) == count + kills


async def expect_all_told(store: Store, names: list[str]) -> None:
    """Events in order and once, and the scorecards that people are shown."""
    for name, memory in zip(names, await finish(store, names), strict=True):
        assert told_events(memory.published_events) == expected_events(name)
    feeds = FeedCache(FixtureCacheRepository(store), store.clock, TTLCache(store.clock, 0, 1))
    for name in names:
        expect_scorecards(await last_heard(feeds, name), name)


async def last_heard(feeds: FeedCache, name: str) -> MatchFeed:
    """What people are shown of a match, once that is its result: it is written a moment after the record."""
    async with asyncio.timeout(LONGEST):
        while True:
            heard = await feeds.get(name)
            if heard is not None and heard.feed.status.is_over:
                return heard.feed
            await asyncio.sleep(0.05)
