"""Several instances on one store: each push and event once, and a takeover after a crash."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator

import msgspec
import pytest

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.repository.key_events import CRICKET_KEY_EVENTS, published_events
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tally.store.changes import START
from tests.cricket import factories
from tests.cricket.faulty_engines import CrashingEngine
from tests.cricket.match_script import MatchScript, feed_of
from tests.cricket.pipeline_fakes import FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import open_cricket_engine, open_instance

BALLS = "1 4 W . 6 6 1 W 2 . 4 4 R 6 1 1 . 2 W 6".split()  # noqa: SIM905  (one word per ball)


async def logged_events(engine: Engine, match_id: str) -> list[KeyEvent]:
    """The events that subscribers of a match receive."""
    page = await engine.read_changes(CRICKET_KEY_EVENTS, match_id, START, 500)
    return [event for change in page.changes for event in published_events(change)]


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
        for balls in range(1, len(BALLS) + 2):  # Two polls confirm the result.
            for match_id in matches:
                scores.live_feeds[match_id] = make_feed(match_id, balls)
            await clock.advance(2.5)
            await asyncio.gather(*(instance.poll() for instance in instances))
        for match_id, token in tokens.items():
            stamps = [push.timestamp for push in gateway.pushes_to(token)]
            assert stamps == sorted(set(stamps))
            assert gateway.pushes_to(token)[-1].content["status"] == "finished"
            state = await instances[0].state(match_id)
            assert len(
                {(event.identity, event.ball_id) for event in state.published_events}
            ) == len(state.published_events)
        events = [event for match_id in matches for event in await logged_events(engine, match_id)]
        recorded = [
            event
            for match_id in matches
            for event in (await instances[0].state(match_id)).published_events
        ]
        assert events == recorded, "streams send each event once, in order"


@pytest.mark.parametrize(
    ("interval", "polls", "takeover_seconds"),
    [(2.5, 5, 15), (60.0, 5, 70), (1_800.0, 1, 70)],
    ids=["live", "idle", "quota nearly exhausted"],
)
async def test_another_instance_polls_soon_after_a_crash_however_rare_polls_are(
    engine: Engine, clock: ManualClock, interval: float, polls: int, takeover_seconds: float
) -> None:
    scores, gateway = FakeScores(clock, paced_interval=interval), FakePushGateway()
    match_id = factories.number()
    scores.live_feeds[match_id] = make_feed(match_id, 1)
    async with (
        open_instance(engine, clock, scores, gateway, name="first") as first,
        open_instance(engine, clock, scores, gateway, name="second") as second,
    ):
        for _ in range(5):
            wait = await first.poll()
            assert await second.poll() == 5
            await clock.advance(wait)
        assert scores.requests == polls
        await first.poll()
        crashed_at, requests = clock.monotonic(), scores.requests
        while (wait := await second.poll()) == 5 and scores.requests == requests:
            await clock.advance(wait)
        assert clock.monotonic() - crashed_at <= takeover_seconds


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
        for _ in range(2):
            await clock.advance(2.5)
            await survivor.poll()
        assert gateway.pushes_to(token)[-1].content["status"] == "finished"


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


async def test_the_polling_instance_exports_the_age_of_the_feed(
    engine: Engine, clock: ManualClock
) -> None:
    """The age grows without a response; an instance that does not poll has no age."""
    scores, gateway, match_id = FakeScores(clock), FakePushGateway(), factories.number()
    async with (
        open_instance(engine, clock, scores, gateway, name="first") as first,
        open_instance(engine, clock, scores, gateway, name="second") as second,
    ):
        await first.follow(match_id, factories.name())
        scores.live_feeds[match_id] = make_feed(match_id, 3)
        for instance in (first, second):
            await instance.poll()
        assert first.poller.metrics.feed_age() == 0
        assert math.isnan(second.poller.metrics.feed_age())
        scores.is_unavailable = True
        await clock.advance(2.5)
        await first.poll()
        assert first.poller.metrics.feed_age() == pytest.approx(2.5)
        values = first.registry.get_sample_value
        assert values("tally_cricket_live_matches") == 1
        assert values("tally_cricket_feed_to_push_seconds_count") == 1


async def test_a_long_break_is_bridged_by_one_quiet_push_every_20_minutes(
    engine: Engine, clock: ManualClock
) -> None:
    """With two instances: without an alert, with the same content; play resumes the usual way."""
    scores, gateway, match_id = FakeScores(clock), FakePushGateway(), factories.number()
    async with contextlib.AsyncExitStack() as stack:
        instances = [
            await stack.enter_async_context(
                open_instance(engine, clock, scores, gateway, name=f"keeper {number}")
            )
            for number in range(2)
        ]
        token = await instances[0].follow(match_id, factories.name())
        scores.live_feeds[match_id] = make_feed(match_id, 3)
        sent: list[int] = []
        for minute in range(46):
            before = len(gateway.pushes_to(token))
            await asyncio.gather(*(instance.poll() for instance in instances))
            sent += [minute] * (len(gateway.pushes_to(token)) - before)
            await clock.advance(60)
        assert sent == [0, 20, 40]
        first, *quiet = gateway.pushes_to(token)
        for push in quiet:
            assert (push.priority, push.alert, push.score) == (5, None, first.score)
        assert first.timestamp < quiet[0].timestamp < quiet[1].timestamp
        scores.live_feeds[match_id] = make_feed(match_id, 4)
        await instances[1].poll()
        assert len(gateway.pushes_to(token)) == 4


async def test_a_keep_alive_that_a_crash_interrupted_is_sent_by_the_next_instance(
    engine: Engine, clock: ManualClock
) -> None:
    scores, gateway, match_id = FakeScores(clock), FakePushGateway(), factories.number()
    scores.live_feeds[match_id] = make_feed(match_id, 3)
    async with open_instance(engine, clock, scores, gateway, name="first") as first:
        token = await first.follow(match_id, factories.name())
        await first.poll()
        await clock.advance(1_200)
        live_match = first.workers.live_matches[match_id]
        # The record is saved, and then the process stops before the fan-out.
        await first.pipeline.process(live_match, await scores_feed(scores, match_id))
    assert len(gateway.pushes_to(token)) == 1
    async with open_instance(engine, clock, scores, gateway, name="second") as second:
        await clock.advance(15)
        await second.poll()
        await clock.advance(60)
        await second.poll()
    assert [push.alert for push in gateway.pushes_to(token)][1:] == [None]


async def scores_feed(scores: FakeScores, match_id: str) -> MatchFeed:
    feed = await scores.match(match_id)
    assert feed is not None
    return feed
