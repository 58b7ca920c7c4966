"""Several instances on one store: each push and event once, and a takeover after a crash."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import PollerState
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.cricket import factories
from tests.cricket.faulty_engines import CrashingEngine
from tests.cricket.match_script import MatchScript, feed_of
from tests.cricket.pipeline_fakes import FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import open_cricket_engine, open_instance

BALLS = "1 4 W . 6 6 1 W 2 . 4 4 R 6 1 1 . 2 W 6".split()  # noqa: SIM905  (one word per ball)


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_cricket_engine(tmp_path_factory.mktemp("instances")) as opened:
        yield opened


def make_feed(match_id: str, count: int) -> MatchFeed:
    status = MatchStatus.FINISHED if count >= len(BALLS) else MatchStatus.IN_PLAY
    return msgspec.structs.replace(
        feed_of(MatchScript().innings(1, BALLS[:count]).balls, status), match_id=match_id
    )


@pytest.mark.parametrize("count", [2, 3])
async def test_each_push_and_event_is_sent_once(
    engine: Engine, clock: ManualClock, count: int
) -> None:
    """All instances poll concurrently; the holder of the lock processes the match."""
    scores, gateway = FakeScores(clock), FakePushGateway()
    matches = [factories.number() for _ in range(4)]
    async with contextlib.AsyncExitStack() as stack:
        instances = [
            await stack.enter_async_context(
                open_instance(engine, clock, scores, gateway, name=f"instance {number}")
            )
            for number in range(count)
        ]
        tokens = {
            match_id: await instances[0].follow(match_id, factories.name()) for match_id in matches
        }
        for balls in range(1, len(BALLS) + 1):
            for match_id in matches:
                scores.live_feeds[match_id] = make_feed(match_id, balls)
            await clock.advance(2.5)
            await asyncio.gather(*(instance.poll() for instance in instances))
        for match_id, token in tokens.items():
            stamps = [push.timestamp for push in gateway.pushes_to(token)]
            assert stamps == sorted(set(stamps))
            assert gateway.pushes_to(token)[-1].event == "end"
            state = await instances[0].state(match_id)
            assert len(
                {(event.identity, event.ball_id) for event in state.published_events}
            ) == len(state.published_events)
        events = [event for instance in instances for event in instance.published.events]
        recorded = [
            event
            for match_id in matches
            for event in (await instances[0].state(match_id)).published_events
        ]
        assert len(events) == len(recorded)


async def test_another_instance_takes_over_when_the_lock_expires(
    engine: Engine, clock: ManualClock
) -> None:
    """The next poll after the expiry of the lock processes the match."""
    scores, gateway, match_id = FakeScores(clock), FakePushGateway(), factories.number()
    crashing = CrashingEngine(engine)
    async with (
        open_instance(engine, clock, scores, gateway, name="survivor") as survivor,
        open_instance(crashing, clock, scores, gateway, name="crashing") as crashing_instance,
    ):
        token = await survivor.follow(match_id, factories.name())
        scores.live_feeds[match_id] = make_feed(match_id, 3)

        def crash(_: object) -> None:
            crashing.crash()

        gateway.on_send = crash
        await crashing_instance.poll()
        assert crashing.has_crashed
        gateway.on_send = lambda _: None
        gateway.pushes.clear()
        scores.live_feeds[match_id] = make_feed(match_id, 6)
        waited = 0.0
        while not gateway.pushes:
            await clock.advance(2.5)
            waited += 2.5
            await survivor.poll()
        assert 7.5 <= waited <= 12.5
        assert gateway.pushes_to(token)[-1].score == "17/1 -"
        scores.live_feeds[match_id] = make_feed(match_id, len(BALLS))
        await clock.advance(2.5)
        await survivor.poll()
        assert (await survivor.record(match_id)).poller_state is PollerState.ENDED


async def test_the_last_instance_refreshes_the_match_record(
    engine: Engine, clock: ManualClock
) -> None:
    """Without changes too: a stale record would look like a crashed instance."""
    scores, gateway, match_id = FakeScores(clock), FakePushGateway(), factories.number()
    async with open_instance(engine, clock, scores, gateway, name="first") as first:
        scores.live_feeds[match_id] = make_feed(match_id, 3)
        await first.poll()
    async with open_instance(engine, clock, scores, gateway, name="second") as second:
        for _ in range(20):
            await clock.advance(2.5)
            await second.poll()
            record = await second.record(match_id)
            assert clock.milliseconds() - record.last_updated_at <= 12_500
        assert (await second.record(match_id)).owner == "second"
