"""Two servers on one data directory: nobody notices which of them did the work."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from pyreqwest.response import Response

from tally.kit.change_poller import POLL_SECONDS
from tests.collect.processes import second_server
from tests.collect.server_harness import CollectServer, LinkedUser, open_server


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CollectServer]:
    """A club that applies nothing by itself, and another server beside it that does."""
    async with (
        open_server(
            tmp_path_factory.mktemp("pair"), start=datetime.now(UTC).replace(microsecond=0)
        ) as server,
        second_server(server),
    ):
        yield server


async def until_shown(member: LinkedUser, milestone_id: str, parts: int) -> None:
    """Ask until so many parts are there; the other server looks twice a second."""
    while (await member.get_milestone(milestone_id))["partsMinted"] < parts:
        pass


async def test_whoever_watches_here_sees_what_was_minted_there(pair: CollectServer) -> None:
    """Each part once, in order, on every stream of the athlete, with one look a second for all of them."""
    ann = await pair.create_user()
    milestone_id = (await ann.create_milestone())["milestoneId"]
    url = f"{pair.url}/milestones/{milestone_id}/events"
    requests = [
        pair.client.get(url).header("Cookie", f"cc_session={ann.browser.session}") for _ in range(2)
    ]
    one, other = (request.streamed_read_buffer_limit(0).build_streamed() for request in requests)
    async with one as first, other as second:
        told = [await heard_until(stream, b"event: milestone", 1) for stream in (first, second)]
        for rides in (2000, 1500):
            pair.strava.record(ann.athlete_id, "Ride", rides)
        await pair.strava.webhooks.wait_idle()
        await asyncio.wait_for(until_shown(ann, milestone_id, 3), 30)
        await pair.clock.until_sleeping()
        await pair.clock.advance(POLL_SECONDS)
        for number, stream in enumerate((first, second)):
            told[number] += await heard_until(stream, b"event: minted", 3)
    for text in told:
        minted = [
            msgspec.json.decode(block.split(b"data: ")[1])
            for block in text.split(b"\n\n")
            if b"event: minted" in block
        ]
        assert [award["partIndex"] for award in minted] == [1, 2, 3]
        assert b'"progress":3500.0' in text
    assert (await pair.patterns())["Look for moved milestones"]["calls"] == 1


async def heard_until(stream: Response, words: bytes, times: int) -> bytes:
    """What a stream says until it has said these words so often."""
    told = b""
    while told.count(words) < times or not told.endswith(b"\n\n"):
        chunk = await asyncio.wait_for(stream.body_reader.read_chunk(), 30)
        assert chunk is not None, told
        told += bytes(chunk)
    return told


async def test_a_server_that_is_killed_at_work_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """What it had begun is picked up by another when the lease is over."""
    async with open_server(tmp_path, start=datetime.now(UTC).replace(microsecond=0)) as server:
        ann = await server.create_user()
        milestone_id = (await ann.create_milestone())["milestoneId"]
        for _ in range(24):
            server.strava.record(ann.athlete_id, "Ride", 500)
        await server.strava.webhooks.wait_idle()
        async with second_server(server):
            await asyncio.wait_for(until_shown(ann, milestone_id, 1), 60)
        server.skip_time(3600)
        await server.process_inbox()
        done = await ann.get_milestone(milestone_id)
        assert (done["progress"], done["status"]) == (12_000, "COMPLETED")
        assert [award["partIndex"] for award in done["awards"]] == list(range(1, 13))
        assert len((await ann.browser.get("/workouts?limit=100")).json["workouts"]) == 24


async def test_two_workers_mint_every_part_once(pair: CollectServer) -> None:
    """Whoever takes up which event, all workouts count, and the counter is the ledger."""
    ann = await pair.create_user()
    milestone_id = (await ann.create_milestone())["milestoneId"]
    for _ in range(24):
        pair.strava.record(ann.athlete_id, "Ride", 500)
        pair.strava.webhooks.duplicates = 1
    await pair.strava.webhooks.wait_idle()

    async def work_too() -> None:
        while True:
            await pair.collect.worker.run()
            await asyncio.sleep(0.01)

    working = asyncio.create_task(work_too())
    try:
        await asyncio.wait_for(until_shown(ann, milestone_id, 12), 60)
    finally:
        working.cancel()
        await asyncio.wait({working})
        pair.strava.webhooks.duplicates = 0
    done = await ann.get_milestone(milestone_id)
    assert (done["progress"], done["status"]) == (12_000, "COMPLETED")
    assert [award["partIndex"] for award in done["awards"]] == list(range(1, 13))
    events = await pair.audit(f"user={ann.user_id}&limit=200")
    minted = [
        event["facts"]["part"] for event in events if event["eventType"] == "MILESTONE_PART_MINTED"
    ]
    assert len(minted) == len(set(minted))
