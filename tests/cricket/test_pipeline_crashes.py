"""A process may die between any two writes: no event is lost or told twice, and every device ends with the final state."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec
import pytest

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import PollerState
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.cricket import made_up
from tests.cricket.faulty_engines import CrashingEngine, EngineCrashed
from tests.cricket.pipeline_fakes import FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import PipelineInstance, open_cricket_engine, open_instance
from tests.cricket.play import Play, feed_of

MAX_WRITES: Final = 120
FIRST: Final = "1 4 W 6 . 1"
POLLS: Final = (
    (FIRST, "", MatchStatus.IN_PLAY),
    (f"{FIRST} 6 6 W", "6 6 6 W 4 6", MatchStatus.FINISHED),
)


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with open_cricket_engine(tmp_path_factory.mktemp("crashes")) as opened:
        yield opened


def feeds(match_id: str) -> list[MatchFeed]:
    made = []
    for first, second, status in POLLS:
        play = Play().innings(1, first)
        if second:
            play.innings(2, second)
        made.append(msgspec.structs.replace(feed_of(play.balls, status), match_id=match_id))
    return made


def told(events: tuple[KeyEvent, ...]) -> list[tuple[str, int, str, int]]:
    return [(event.kind, event.innings, event.subject, event.ball_id) for event in events]


async def play_through(
    one: PipelineInstance,
    scores: FakeScores,
    match_id: str,
    done: int = 0,
    crashing: CrashingEngine | None = None,
) -> int:
    """Poll after poll from number `done` on; how many were over when the process died, or all."""
    assert isinstance(one.clock, ManualClock)
    for number, feed in enumerate(feeds(match_id)):
        if number >= done:
            scores.live_feeds[match_id] = feed
            await one.clock.advance(2.5)
            with contextlib.suppress(EngineCrashed):
                await one.poll()
            if crashing is not None and crashing.has_crashed:
                return number
    return len(POLLS)


async def reference(engine: Engine, clock: ManualClock) -> list[tuple[str, int, str, int]]:
    """The events of a run in which nobody dies."""
    match_id, scores, gateway = made_up.number(), FakeScores(clock), FakePushGateway()
    async with open_instance(engine, clock, scores, gateway) as one:
        await play_through(one, scores, match_id)
        return told((await one.state(match_id)).published_events)


def expect_good_pushes(gateway: FakePushGateway, token: str) -> None:
    """Never an older state after a newer one, never two states with one timestamp, and the end at the end."""
    pushes = gateway.pushes_to(token)
    stamps = [push.timestamp for push in pushes]
    assert stamps == sorted(stamps)
    contents: dict[int, object] = {}
    for push in pushes:
        assert contents.setdefault(push.timestamp, push.content) == push.content
    assert pushes[-1].event == "end"
    assert pushes[-1].content["status"] == "finished"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_write_loses_nothing_and_repeats_no_event(
    engine: Engine, clock: ManualClock, after: bool
) -> None:
    """Whoever comes next, when the lock has expired, ends where a run without a crash would."""
    expected = await reference(engine, clock)
    for writes in range(MAX_WRITES):
        match_id, scores, gateway = made_up.number(), FakeScores(clock), FakePushGateway()
        crashing = CrashingEngine(engine, writes, after=after)
        async with open_instance(engine, clock, scores, gateway, name="nobody") as before:
            tokens = [await before.follow(match_id, made_up.name()) for _ in range(2)]
        async with open_instance(crashing, clock, scores, gateway, name="doomed") as doomed:
            done = await play_through(doomed, scores, match_id, 0, crashing)
        await clock.advance(11)  # the lock is over
        async with open_instance(engine, clock, scores, gateway, name="heir") as heir:
            await play_through(heir, scores, match_id, min(done, len(POLLS) - 1))
            assert told((await heir.state(match_id)).published_events) == expected
            assert (await heir.record(match_id)).poller_state is PollerState.ENDED
        for token in tokens:
            expect_good_pushes(gateway, token)
        if not crashing.has_crashed:
            return
    pytest.fail(f"the match takes more than {MAX_WRITES} writes")


async def test_a_process_that_dies_in_its_fan_out_leaves_the_rest_to_the_next(
    engine: Engine, clock: ManualClock
) -> None:
    """The state that not everybody had is delivered again, and not to be taken for an older one."""
    match_id, scores, gateway = made_up.number(), FakeScores(clock), FakePushGateway()
    crashing = CrashingEngine(engine)
    async with open_instance(crashing, clock, scores, gateway, name="doomed") as doomed:
        tokens = [await doomed.follow(match_id, made_up.name()) for _ in range(1200)]
        scores.live_feeds[match_id] = feeds(match_id)[0]

        def die_in_the_middle(_: object) -> None:
            if len(gateway.pushes) == 100:
                crashing.crash()

        gateway.on_send = die_in_the_middle
        await doomed.poll()
    reached = len(gateway.pushes)
    assert 100 <= reached < 1200
    await clock.advance(11)
    async with open_instance(engine, clock, scores, gateway, name="heir") as heir:
        await heir.poll()
        assert len({push.timestamp for push in gateway.pushes}) == 1
        assert {push.token for push in gateway.pushes} == set(tokens)
        count = len(gateway.pushes)
        await clock.advance(2.5)
        await heir.poll()
        assert len(gateway.pushes) == count
