"""Those who watch a match are told, whichever process sees to it."""

import asyncio
from dataclasses import replace
from pathlib import Path

from tally.app import build_app, open_application
from tally.kit.server import serving
from tests.cricket.api_harness import ApiClient, open_api_harness, watching


async def test_a_page_on_one_instance_shows_what_another_has_seen(tmp_path: Path) -> None:
    async with open_api_harness(tmp_path) as ground:
        match = ground.live_match(12)
        await ground.sync()
        await ground.poll()
        async with (
            open_application(ground.parts.settings, ground.clock) as parts,
            serving(build_app(replace(parts, jobs=())), on_stopping=parts.drain) as url,
        ):
            elsewhere = ApiClient(ground.client, f"{url}/cricket", ground.person("ana").headers)
            async with watching(elsewhere, f"/matches/{match.match.id}/events") as watcher:
                assert (await watcher.event())["event"] == "display"
                match.deliver(12)
                ground.pass_time(3)
                await ground.poll()
                await ground.clock.until_sleeping()
                await ground.clock.advance(1)
                told = [await asyncio.wait_for(watcher.event(), 20)]
                while told[-1]["event"] != "display":
                    told.append(await asyncio.wait_for(watcher.event(), 20))
    assert {event["event"] for event in told[:-1]} == {"event"}, (
        "what happened comes before the state that it led to"
    )
    assert str(match.match.id) in told[-1]["data"]
