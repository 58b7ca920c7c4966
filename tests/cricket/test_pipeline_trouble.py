"""A live match while Apple is in trouble, on real sockets: no final state is lost, and no device sees the score go back."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import PollerState
from tally.kit.clock import ManualClock
from tally.sim.apns.faults import PushFault
from tally.store.api import Engine
from tests.cricket import made_up
from tests.cricket.apns_harness import Apple, apple_nearby
from tests.cricket.pipeline_fakes import FakeScores
from tests.cricket.pipeline_harness import PipelineInstance, open_cricket_engine, open_instance
from tests.cricket.play import Play, feed_of

WORDS = ("1", "1 4", "1 4 W", "1 4 W 6", "1 4 W 6 6 1")
DEVICES = 40

TROUBLES = {
    "429": PushFault(status=429, reason="TooManyRequests", times=90, skip=30),
    "503 for long": PushFault(status=503, reason="ServiceUnavailable", times=700, skip=70),
    "goaway": PushFault(goaway="abrupt", times=3, skip=50),
    "reset": PushFault(cut="before", times=3, skip=60),
    "cut after": PushFault(cut="after", times=3, skip=45),
    "slow": PushFault(delay=0.05, times=60, skip=20),
    "403": PushFault(status=403, reason="ExpiredProviderToken", times=20, skip=30),
}


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_cricket_engine(tmp_path_factory.mktemp("trouble")) as opened:
        yield opened


@pytest.fixture(scope="module")
async def apple(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Apple]:
    async with apple_nearby(tmp_path_factory.mktemp("apple")) as nearby:
        yield nearby


def said(match_id: str, words: str, status: MatchStatus = MatchStatus.IN_PLAY) -> MatchFeed:
    return msgspec.structs.replace(
        feed_of(Play().innings(1, words).balls, status), match_id=match_id
    )


async def sit_out(clock: ManualClock, work: Any) -> None:
    """Let the time pass that `work` waits for."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=0.02)
        if not task.done():
            await clock.advance(0.2)
    await task


async def play(
    one: PipelineInstance, clock: ManualClock, scores: FakeScores, match_id: str
) -> None:
    """Every poll comes while the pushes of the one before may still be on their way; after the last, all are awaited."""
    for words in WORDS:
        scores.live_feeds[match_id] = said(match_id, words)
        await clock.advance(2.5)
        await one.poller.run()
    scores.live_feeds[match_id] = said(match_id, WORDS[-1], MatchStatus.FINISHED)
    # On a busy machine the test's clock may outrun the lock; then the next poll goes on where the
    # last one stopped.
    for _ in range(20):
        await clock.advance(2.5)
        await sit_out(clock, one.poller.run())
        await sit_out(clock, one.workers.wait_idle())
        if (await one.record(match_id)).poller_state is PollerState.ENDED:
            return
    pytest.fail("the match does not come to its end")


@pytest.mark.parametrize("name", TROUBLES)
async def test_devices_end_with_the_final_state_in_spite_of(
    engine: Engine, clock: ManualClock, apple: Apple, name: str
) -> None:
    """And what each has seen never went back."""
    apple.sim.log.clear()
    apple.sim.faults.add(TROUBLES[name])
    scores, match_id = FakeScores(clock), made_up.number()
    async with open_instance(engine, clock, scores, apple.gateway) as one:
        tokens = [await one.follow(match_id, token) for token in apple.tokens(DEVICES)]
        await play(one, clock, scores, match_id)
    apple.sim.faults.clear()
    for token in tokens:
        taken = [json.loads(payload)["aps"] for payload in apple.sim.log.payloads(token)]
        stamps = [aps["timestamp"] for aps in taken]
        assert stamps == sorted(stamps)
        assert taken[-1]["event"] == "end"
        assert taken[-1]["content-state"]["status"] == "finished"


async def test_tokens_that_are_gone_end_and_the_others_are_told(
    engine: Engine, clock: ManualClock, apple: Apple
) -> None:
    """410 and BadDeviceToken, each for that device alone."""
    scores, match_id = FakeScores(clock), made_up.number()
    tokens = apple.tokens(6)
    apple.sim.devices.retire(tokens[0])
    async with open_instance(engine, clock, scores, apple.gateway) as one:
        for token in [*tokens, "ab" * 80]:
            await one.follow(match_id, token)
        await play(one, clock, scores, match_id)
        ended = {
            each.user_id: each.end_reason
            async for each in one.repositories.activities.of_match(match_id, clock.milliseconds())
            if each.end_reason is not None
        }
    assert {user: reason.value for user, reason in ended.items()} == {
        f"user-{tokens[0]}": "token_invalid",
        f"user-{'ab' * 80}": "token_invalid",
    }
    for token in tokens[1:]:
        assert json.loads(apple.sim.log.payloads(token)[-1])["aps"]["event"] == "end"
