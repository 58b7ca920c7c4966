"""Instances that are killed and restarted during matches lose and repeat no event."""

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
from tests.e2e.server_processes import ServerProcess, start_servers
from tests.recorded import event_summaries, expect_scorecards, expected_events, recorded

LIVESCORES = "/api/v2.0/livescores"
TIMEOUT_SECONDS = 90
# Real seconds per step of a match.
STEP_SECONDS = 0.03


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition in another process."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110  (another process has no event to await)
            await asyncio.sleep(0.01)


async def kill_and_restart(
    server: ServerProcess, sportmonks: SportMonksSimulator, chance: random.Random
) -> None:
    """Let a server process some polls, kill it at a random moment and start it again."""
    polls = sportmonks.faults.count(LIVESCORES) + chance.randint(5, 20)
    await wait_until(lambda: sportmonks.faults.count(LIVESCORES) >= polls)
    await asyncio.sleep(chance.random() * 0.05)  # at a random moment
    await server.kill()
    await server.start()


async def read_states(store: Store, names: list[str]) -> list[PipelineState]:
    records = [await ActiveMatchRepository(store).get(name) for name in names]
    return [PipelineState() if record is None else pipeline_state(record) for record in records]


async def wait_for_ends(store: Store, names: list[str]) -> list[PipelineState]:
    """Wait for the end of all matches; return their states."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            states = await read_states(store, names)
            if all(
                any(event.kind == "match_end" for event in state.published_events)
                for state in states
            ):
                return states
            await asyncio.sleep(0.05)


async def play_matches(sportmonks: SportMonksSimulator) -> None:
    """Play the matches at a fixed pace wait_until each has its result."""
    running_matches = list(sportmonks.playbacks.values())
    while running_matches:
        for match in running_matches:
            match.step()
        running_matches = [match for match in running_matches if not match.progress.is_over]
        await asyncio.sleep(STEP_SECONDS)


@pytest.mark.judge
@pytest.mark.parametrize(
    ("names", "count", "kills"), [(["1304076", "1082625"], 1, 3), (["1175368"], 2, 2)]
)
async def test_killed_instances_lose_and_repeat_no_event(
    tmp_path: Path, names: list[str], count: int, kills: int
) -> None:
    """A single instance, and two that share the matches."""
    clock, chance = SystemClock(), random.Random()
    async with SportMonksSimulator(clock).serving() as sportmonks:
        sportmonks.limits.hourly = 10**9
        for name in names:
            sportmonks.add(recorded(name))
        async with start_servers(tmp_path, sportmonks, count) as running:
            await wait_until(lambda: sportmonks.faults.count(LIVESCORES) >= count)
            playing = asyncio.create_task(play_matches(sportmonks))
            for _ in range(kills):
                await kill_and_restart(chance.choice(running), sportmonks, chance)
            await playing
            async with open_sqlite(tmp_path / "data") as engine:
                await expect_all_published(Store(engine, clock), names)
            await wait_until(lambda: all(server.is_started for server in running))
            for server in running:
                assert await server.stop() == 0, server.log_text()[-2000:]
            assert sum(server.starts for server in running) == count + kills


async def expect_all_published(store: Store, names: list[str]) -> None:
    """All events are published once and in order, and the scorecards are correct."""
    for name, state in zip(names, await wait_for_ends(store, names), strict=True):
        assert event_summaries(state.published_events) == expected_events(name)
    feeds = FeedCache(FixtureCacheRepository(store), store.clock, TTLCache(store.clock, 0, 1))
    for name in names:
        expect_scorecards(await final_feed(feeds, name), name)


async def final_feed(feeds: FeedCache, name: str) -> MatchFeed:
    """Return the cached final feed, which is written shortly after the record."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            cached = await feeds.get(name)
            if cached is not None and cached.feed.status.is_over:
                return cached.feed
            await asyncio.sleep(0.05)


@pytest.mark.judge
async def test_one_of_two_instances_polls_until_it_is_killed(tmp_path: Path) -> None:
    """The other one takes over."""
    async with SportMonksSimulator(SystemClock()).serving() as sportmonks:
        sportmonks.limits.hourly = 10**9
        sportmonks.add(recorded("1304076"))
        async with start_servers(tmp_path, sportmonks, 2) as servers:
            await wait_until(lambda: all(server.is_started for server in servers))
            await wait_until(lambda: any(server.is_poller for server in servers))
            polls = sportmonks.faults.count(LIVESCORES)
            await wait_until(lambda: sportmonks.faults.count(LIVESCORES) >= polls + 20)
            assert [server.is_poller for server in servers].count(True) == 1
            (poller,) = [server for server in servers if server.is_poller]
            (standby,) = [server for server in servers if server is not poller]
            await poller.kill()
            await wait_until(lambda: standby.is_poller)
            polls = sportmonks.faults.count(LIVESCORES)
            await wait_until(lambda: sportmonks.faults.count(LIVESCORES) >= polls + 20)
