"""Two servers share one data directory and the work."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from pyreqwest.response import Response

from tests.collect.processes import second_server
from tests.collect.server_harness import CollectServer, LinkedUser, open_server


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CollectServer]:
    """A server without jobs, and a second server that processes the inbox."""
    async with (
        open_server(
            tmp_path_factory.mktemp("pair"), start=datetime.now(UTC).replace(microsecond=0)
        ) as server,
        second_server(server),
    ):
        yield server


async def wait_for_parts(member: LinkedUser, milestone_id: str, parts: int) -> None:
    """Poll until the milestone has that many parts."""
    while (await member.get_milestone(milestone_id))["partsMinted"] < parts:
        pass


async def test_subscribers_see_mints_of_the_other_server(pair: CollectServer) -> None:
    """Each part once, in order, on every stream."""
    ann = await pair.create_user()
    milestone_id = (await ann.create_milestone())["milestoneId"]
    url = f"{pair.url}/milestones/{milestone_id}/events"
    requests = [
        pair.client.get(url).header("Cookie", f"cc_session={ann.browser.session}") for _ in range(2)
    ]
    stream_one, stream_two = (
        request.streamed_read_buffer_limit(0).build_streamed() for request in requests
    )
    async with stream_one as first, stream_two as second:
        received = [await read_until(stream, b"event: snapshot", 1) for stream in (first, second)]
        for rides in (2000, 1500):
            pair.strava.record(ann.athlete_id, "Ride", rides)
        await pair.strava.webhooks.wait_idle()
        await asyncio.wait_for(wait_for_parts(ann, milestone_id, 3), 30)
        for number, stream in enumerate((first, second)):
            received[number] += await read_until(stream, b"event: minted", 3)
    for text in received:
        minted = [
            msgspec.json.decode(block.split(b"data: ")[1])
            for block in text.split(b"\n\n")
            if b"event: minted" in block
        ]
        assert [award["partIndex"] for award in minted] == [1, 2, 3]


async def read_until(stream: Response, words: bytes, times: int) -> bytes:
    """Read a stream until it contains these words that many times."""
    received = b""
    while received.count(words) < times or not received.endswith(b"\n\n"):
        chunk = await asyncio.wait_for(stream.body_reader.read_chunk(), 30)
        assert chunk is not None, received
        received += bytes(chunk)
    return received


async def test_a_killed_server_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    """Another server takes over its claims when the leases expire."""
    async with open_server(tmp_path, start=datetime.now(UTC).replace(microsecond=0)) as server:
        ann = await server.create_user()
        milestone_id = (await ann.create_milestone())["milestoneId"]
        for _ in range(24):
            server.strava.record(ann.athlete_id, "Ride", 500)
        await server.strava.webhooks.wait_idle()
        async with second_server(server):
            await asyncio.wait_for(wait_for_parts(ann, milestone_id, 1), 60)
        server.skip_time(3600)
        await server.process_inbox()
        done = await ann.get_milestone(milestone_id)
        assert (done["progress"], done["status"]) == (12_000, "COMPLETED")
        assert [award["partIndex"] for award in done["awards"]] == list(range(1, 13))
        assert len((await ann.browser.get("/workouts?limit=100")).json["items"]) == 24


async def test_two_workers_mint_each_part_once(pair: CollectServer) -> None:
    """All workouts count, and the counter equals the ledger."""
    ann = await pair.create_user()
    milestone_id = (await ann.create_milestone())["milestoneId"]
    for _ in range(24):
        pair.strava.record(ann.athlete_id, "Ride", 500)
        pair.strava.webhooks.duplicates = 1
    await pair.strava.webhooks.wait_idle()

    async def process_continuously() -> None:
        while True:
            await pair.collect.worker.run()
            await asyncio.sleep(0.01)

    working = asyncio.create_task(process_continuously())
    try:
        await asyncio.wait_for(wait_for_parts(ann, milestone_id, 12), 60)
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
