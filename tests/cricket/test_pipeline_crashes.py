"""A crash between any two writes loses and repeats no event; every device gets the final state."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec
import pytest

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.pipeline import IS_OVER_ATTRIBUTE
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.cricket import factories
from tests.cricket.faulty_engines import CrashingEngine, EngineCrashed
from tests.cricket.match_script import MatchScript, feed_of
from tests.cricket.pipeline_fakes import FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import PipelineInstance, open_cricket_engine, open_instance

MAX_WRITES: Final = 120
FIRST: Final = "1 4 W 6 . 1"
POLLS: Final = (
    (FIRST, "", MatchStatus.IN_PLAY),
    (f"{FIRST} 6 6 W", "6 6 6 W 4 6", MatchStatus.FINISHED),
    (f"{FIRST} 6 6 W", "6 6 6 W 4 6", MatchStatus.FINISHED),
)


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_cricket_engine(tmp_path_factory.mktemp("crashes")) as opened:
        yield opened


def feeds(match_id: str) -> list[MatchFeed]:
    result = []
    for first, second, status in POLLS:
        play = MatchScript().innings(1, first)
        if second:
            play.innings(2, second)
        result.append(msgspec.structs.replace(feed_of(play.balls, status), match_id=match_id))
    return result


def event_keys(events: tuple[KeyEvent, ...]) -> list[tuple[str, int, str, int]]:
    return [(event.kind, event.innings, event.subject, event.ball_id) for event in events]


async def process_polls(
    instance: PipelineInstance,
    scores: FakeScores,
    match_id: str,
    done: int = 0,
    crashing: CrashingEngine | None = None,
) -> int:
    """Process the polls from number `done` on; return how many completed before a crash."""
    assert isinstance(instance.clock, ManualClock)
    for number, feed in enumerate(feeds(match_id)):
        if number >= done:
            scores.live_feeds[match_id] = feed
            await instance.clock.advance(2.5)
            with contextlib.suppress(EngineCrashed):
                await instance.poll()
            if crashing is not None and crashing.has_crashed:
                return number
    return len(POLLS)


async def expected_events(engine: Engine, clock: ManualClock) -> list[tuple[str, int, str, int]]:
    """Return the events of a run without a crash."""
    match_id, scores, gateway = factories.number(), FakeScores(clock), FakePushGateway()
    async with open_instance(engine, clock, scores, gateway) as instance:
        await process_polls(instance, scores, match_id)
        return event_keys((await instance.state(match_id)).published_events)


def expect_ordered_pushes(gateway: FakePushGateway, token: str) -> None:
    """Timestamps never decrease, each belongs to one state, and the last push is the result."""
    pushes = gateway.pushes_to(token)
    stamps = [push.timestamp for push in pushes]
    assert stamps == sorted(stamps)
    contents: dict[int, object] = {}
    for push in pushes:
        assert contents.setdefault(push.timestamp, push.content) == push.content
    assert pushes[-1].content["status"] == "finished"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_write_loses_nothing_and_repeats_no_event(
    engine: Engine, clock: ManualClock, after: bool
) -> None:
    """After the lock expires, another instance reaches the state of a run without a crash."""
    expected = await expected_events(engine, clock)
    for writes in range(MAX_WRITES):
        match_id, scores, gateway = factories.number(), FakeScores(clock), FakePushGateway()
        crashing = CrashingEngine(engine, writes, after=after)
        async with open_instance(engine, clock, scores, gateway, name="initial") as before:
            tokens = [await before.follow(match_id, factories.name()) for _ in range(2)]
        async with open_instance(
            crashing, clock, scores, gateway, name="crashing"
        ) as crashing_instance:
            done = await process_polls(crashing_instance, scores, match_id, 0, crashing)
        await clock.advance(11)
        async with open_instance(engine, clock, scores, gateway, name="successor") as successor:
            await process_polls(successor, scores, match_id, min(done, len(POLLS) - 2))
            assert event_keys((await successor.state(match_id)).published_events) == expected
            assert (await successor.record(match_id)).extra[IS_OVER_ATTRIBUTE]
        for token in tokens:
            expect_ordered_pushes(gateway, token)
        if not crashing.has_crashed:
            return
    pytest.fail(f"the match needs more than {MAX_WRITES} writes")


async def test_a_crash_during_the_fan_out_is_completed_by_another_instance(
    engine: Engine, clock: ManualClock
) -> None:
    """The update is delivered again with the same timestamp."""
    match_id, scores, gateway = factories.number(), FakeScores(clock), FakePushGateway()
    crashing = CrashingEngine(engine)
    async with open_instance(
        crashing, clock, scores, gateway, name="crashing"
    ) as crashing_instance:
        tokens = [await crashing_instance.follow(match_id, factories.name()) for _ in range(1200)]
        scores.live_feeds[match_id] = feeds(match_id)[0]

        def crash_halfway(_: object) -> None:
            if len(gateway.pushes) == 100:
                crashing.crash()

        gateway.on_send = crash_halfway
        await crashing_instance.poll()
    reached = len(gateway.pushes)
    assert 100 <= reached < 1200
    await clock.advance(11)
    async with open_instance(engine, clock, scores, gateway, name="successor") as successor:
        await successor.poll()
        assert len({push.timestamp for push in gateway.pushes}) == 1
        assert {push.token for push in gateway.pushes} == set(tokens)
        count = len(gateway.pushes)
        await clock.advance(2.5)
        await successor.poll()
        assert len(gateway.pushes) == count
