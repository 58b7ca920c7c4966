"""SSE subscribers receive changes of all processes."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from tally.app import build_app, open_application
from tally.kit.server import serving
from tests.api_response import expect_error
from tests.cricket.api_harness import ApiClient, open_api_harness, open_stream


async def test_a_stream_receives_changes_of_another_instance(tmp_path: Path) -> None:
    async with open_api_harness(tmp_path) as server:
        match = server.live_match(12)
        await server.sync()
        await server.poll()
        async with (
            open_application(server.application.settings, server.clock) as application,
            serving(build_app(replace(application, jobs=())), on_stopping=application.drain) as url,
        ):
            other_instance = ApiClient(server.client, f"{url}/cricket", server.user("ana").headers)
            async with open_stream(other_instance, f"/matches/{match.match.id}/events") as reader:
                assert [(await reader.event())["event"] for _ in range(2)] == [
                    "snapshot",
                    "display",
                ]
                match.deliver(12)
                server.skip_time(3)
                await server.poll()
                events = [await asyncio.wait_for(reader.event(), 20)]
                while events[-1]["event"] != "display":
                    events.append(await asyncio.wait_for(reader.event(), 20))
    assert {event["event"] for event in events[:-1]} == {"event"}, (
        "events precede the display state that they lead to"
    )
    assert str(match.match.id) in events[-1]["data"]


async def test_a_stream_ends_when_its_token_expires(tmp_path: Path) -> None:
    async with open_api_harness(tmp_path) as server:
        match = server.live_match(12)
        await server.sync()
        await server.poll()
        async with open_stream(server.user("ana"), f"/matches/{match.match.id}/events") as reader:
            assert (await reader.event())["event"] == "snapshot"
            assert (await reader.event())["event"] == "display"
            server.skip_time(3599)
            late = server.user("ana")
            async with open_stream(late, f"/matches/{match.match.id}/events") as other:
                await other.event()
                await server.application.streams.maintain()
                server.skip_time(1)
                await server.application.streams.maintain()
                events = [await asyncio.wait_for(reader.event(), 20)]
                while events[-1]["event"] == "display":
                    events.append(await asyncio.wait_for(reader.event(), 20))
                assert events[-1] == {"event": "session_ended", "data": "{}"}


async def test_each_user_has_a_limit_of_streams(tmp_path: Path) -> None:
    async with (
        open_api_harness(tmp_path, streams_per_person=2) as server,
        AsyncExitStack() as stack,
    ):
        match = server.live_match(12)
        await server.sync()
        await server.poll()
        path = f"/matches/{match.match.id}/events"
        for _ in range(2):
            await stack.enter_async_context(open_stream(server.user("ana"), path))
        rejected = await server.user("ana").get(path)
        expect_error(rejected, 429, "too_many_streams", "at most 2 per person")
        assert int(rejected.headers["retry-after"]) > 0
        await stack.enter_async_context(open_stream(server.user("ben"), path))
