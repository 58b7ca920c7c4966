"""Several instances on one store: each push once, each event once, and a dead instance's matches go on elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import PollerState
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.cricket import made_up
from tests.cricket.faulty_engines import CrashingEngine
from tests.cricket.pipeline_fakes import FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import open_cricket_engine, open_instance
from tests.cricket.play import Play, feed_of

WORDS = "1 4 W . 6 6 1 W 2 . 4 4 R 6 1 1 . 2 W 6".split()  # noqa: SIM905  (a ball is a word)


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_cricket_engine(tmp_path_factory.mktemp("instances")) as opened:
        yield opened


def said(match_id: str, count: int) -> MatchFeed:
    status = MatchStatus.FINISHED if count >= len(WORDS) else MatchStatus.IN_PLAY
    return msgspec.structs.replace(
        feed_of(Play().innings(1, WORDS[:count]).balls, status), match_id=match_id
    )


@pytest.mark.parametrize("count", [2, 3])
async def test_each_push_and_event_is_sent_once_by_one_of_them(
    engine: Engine, clock: ManualClock, count: int
) -> None:
    """All poll at once; whoever has the lock sees to the match, and the others leave it."""
    scores, gateway = FakeScores(clock), FakePushGateway()
    matches = [made_up.number() for _ in range(4)]
    async with contextlib.AsyncExitStack() as stack:
        all_of_them = [
            await stack.enter_async_context(
                open_instance(engine, clock, scores, gateway, name=f"instance {number}")
            )
            for number in range(count)
        ]
        tokens = {
            match_id: await all_of_them[0].follow(match_id, made_up.name()) for match_id in matches
        }
        for balls in range(1, len(WORDS) + 1):
            for match_id in matches:
                scores.live_feeds[match_id] = said(match_id, balls)
            await clock.advance(2.5)
            await asyncio.gather(*(each.poll() for each in all_of_them))
        for match_id, token in tokens.items():
            stamps = [push.timestamp for push in gateway.pushes_to(token)]
            assert stamps == sorted(set(stamps))
            assert gateway.pushes_to(token)[-1].event == "end"
            memory = await all_of_them[0].state(match_id)
            assert len(
                {(event.identity, event.ball_id) for event in memory.published_events}
            ) == len(memory.published_events)
        events = [event for each in all_of_them for event in each.published.events]
        told = [
            event
            for match_id in matches
            for event in (await all_of_them[0].state(match_id)).published_events
        ]
        assert len(events) == len(told)


async def test_a_dead_instances_match_goes_on_elsewhere_within_the_locks_time(
    engine: Engine, clock: ManualClock
) -> None:
    """Until the lock is over nobody touches it; then the next poll of another instance takes it."""
    scores, gateway, match_id = FakeScores(clock), FakePushGateway(), made_up.number()
    crashing = CrashingEngine(engine)
    async with (
        open_instance(engine, clock, scores, gateway, name="survivor") as survivor,
        open_instance(crashing, clock, scores, gateway, name="doomed") as doomed,
    ):
        token = await survivor.follow(match_id, made_up.name())
        scores.live_feeds[match_id] = said(match_id, 3)

        def die(_: object) -> None:
            crashing.crash()

        gateway.on_send = die
        await doomed.poll()
        assert crashing.has_crashed
        gateway.on_send = lambda _: None
        gateway.pushes.clear()
        scores.live_feeds[match_id] = said(match_id, 6)
        waited = 0.0
        while not gateway.pushes:
            await clock.advance(2.5)
            waited += 2.5
            await survivor.poll()
        assert 7.5 <= waited <= 12.5
        assert gateway.pushes_to(token)[-1].score == "17/1 -"
        scores.live_feeds[match_id] = said(match_id, len(WORDS))
        await clock.advance(2.5)
        await survivor.poll()
        assert (await survivor.record(match_id)).poller_state is PollerState.ENDED


async def test_whoever_sees_to_a_match_last_keeps_its_record_fresh(
    engine: Engine, clock: ManualClock
) -> None:
    """Also where nothing changes any more: otherwise the match would be taken for one that has lost its instance."""
    scores, gateway, match_id = FakeScores(clock), FakePushGateway(), made_up.number()
    async with open_instance(engine, clock, scores, gateway, name="first") as first:
        scores.live_feeds[match_id] = said(match_id, 3)
        await first.poll()
    async with open_instance(engine, clock, scores, gateway, name="second") as second:
        for _ in range(20):
            await clock.advance(2.5)
            await second.poll()
            record = await second.record(match_id)
            assert clock.milliseconds() - record.last_updated_at <= 12_500
        assert (await second.record(match_id)).owner == "second"
