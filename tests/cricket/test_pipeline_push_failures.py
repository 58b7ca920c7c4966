"""A live match while APNs fails, on real sockets: no final state is lost or outdated."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.kit.clock import ManualClock
from tally.sim.apns.faults import PushFault
from tally.store.api import Engine
from tests.cricket import factories
from tests.cricket.apns_harness import ApnsHarness
from tests.cricket.match_script import MatchScript, feed_of
from tests.cricket.pipeline_fakes import FakeScores
from tests.cricket.pipeline_harness import PipelineInstance, open_cricket_engine, open_instance

INNINGS = ("1", "1 4", "1 4 W", "1 4 W 6", "1 4 W 6 6 1")
DEVICES = 40

FAULTS = {
    "429": PushFault(status=429, reason="TooManyRequests", times=90, skip=30),
    "long 503": PushFault(status=503, reason="ServiceUnavailable", times=700, skip=70),
    "goaway": PushFault(goaway="abrupt", times=3, skip=50),
    "reset": PushFault(cut="before", times=3, skip=60),
    "cut after": PushFault(cut="after", times=3, skip=45),
    "slow": PushFault(delay=0.05, times=60, skip=20),
    "403": PushFault(status=403, reason="ExpiredProviderToken", times=20, skip=30),
}


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_cricket_engine(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def make_feed(match_id: str, balls: str, status: MatchStatus = MatchStatus.IN_PLAY) -> MatchFeed:
    return msgspec.structs.replace(
        feed_of(MatchScript().innings(1, balls).balls, status), match_id=match_id
    )


async def advance_until_done(clock: ManualClock, work: Any) -> None:
    """Advance the clock until `work` is done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=0.02)
        if not task.done():
            await clock.advance(0.2)
    await task


async def play_match(
    instance: PipelineInstance, clock: ManualClock, scores: FakeScores, match_id: str
) -> None:
    """Poll without waiting for the pushes, and wait for them after the last poll."""
    for balls in INNINGS:
        scores.live_feeds[match_id] = make_feed(match_id, balls)
        await clock.advance(2.5)
        await instance.poller.run()
    scores.live_feeds[match_id] = make_feed(match_id, INNINGS[-1], MatchStatus.FINISHED)
    # On a busy machine the lock may expire by the test's clock; then the next poll continues.
    for _ in range(20):
        await clock.advance(2.5)
        await advance_until_done(clock, instance.poller.run())
        await advance_until_done(clock, instance.workers.wait_idle())
        state = await instance.state(match_id)
        hashes = instance.repositories.hashes
        stored = [await hashes.get(match_id, view) for view in state.content_hashes]
        delivered = [state_hash and state_hash.hash for state_hash in stored]
        if state.progress[0] and delivered == list(state.content_hashes.values()):
            return
    pytest.fail("the result was not delivered to every device")


@pytest.mark.parametrize("name", FAULTS)
async def test_devices_get_the_final_state_despite(
    engine: Engine, clock: ManualClock, apns: ApnsHarness, name: str
) -> None:
    """The timestamps on each device never decrease."""
    apns.simulator.log.clear()
    apns.simulator.faults.add(FAULTS[name])
    scores, match_id = FakeScores(clock), factories.number()
    async with open_instance(engine, clock, scores, apns.gateway) as instance:
        tokens = [await instance.follow(match_id, token) for token in apns.tokens(DEVICES)]
        await play_match(instance, clock, scores, match_id)
    apns.simulator.faults.clear()
    for token in tokens:
        accepted = [json.loads(payload)["aps"] for payload in apns.simulator.log.payloads(token)]
        stamps = [aps["timestamp"] for aps in accepted]
        assert stamps == sorted(stamps)
        assert accepted[-1]["content-state"]["status"] == "finished"


async def test_invalid_tokens_end_and_the_other_devices_get_updates(
    engine: Engine, clock: ManualClock, apns: ApnsHarness
) -> None:
    """410 and BadDeviceToken affect only their device."""
    scores, match_id = FakeScores(clock), factories.number()
    tokens = apns.tokens(6)
    apns.simulator.devices.retire(tokens[0])
    async with open_instance(engine, clock, scores, apns.gateway) as instance:
        for token in [*tokens, "ab" * 80]:
            await instance.follow(match_id, token)
        await play_match(instance, clock, scores, match_id)
        ended = {
            activity.user_id: activity.end_reason
            async for activity in instance.repositories.activities.list_by_match(
                match_id, clock.milliseconds()
            )
            if activity.end_reason is not None
        }
    assert {user: reason.value for user, reason in ended.items()} == {
        f"user-{tokens[0]}": "token_invalid",
        f"user-{'ab' * 80}": "token_invalid",
    }
    for token in tokens[1:]:
        last = json.loads(apns.simulator.log.payloads(token)[-1])["aps"]
        assert last["content-state"]["status"] == "finished"
