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
from tests.cricket.mortal import Mortal
from tests.cricket.pitch import Phones, Scores, instance, pitch_engine
from tests.cricket.play import Play, feed_of

WORDS = "1 4 W . 6 6 1 W 2 . 4 4 R 6 1 1 . 2 W 6".split()  # noqa: SIM905  (a ball is a word)


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with pitch_engine(tmp_path_factory.mktemp("instances")) as opened:
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
    scores, phones = Scores(clock), Phones()
    matches = [made_up.number() for _ in range(4)]
    async with contextlib.AsyncExitStack() as stack:
        all_of_them = [
            await stack.enter_async_context(
                instance(engine, clock, scores, phones, name=f"instance {number}")
            )
            for number in range(count)
        ]
        tokens = {
            match_id: await all_of_them[0].follow(match_id, made_up.name()) for match_id in matches
        }
        for balls in range(1, len(WORDS) + 1):
            for match_id in matches:
                scores.now[match_id] = said(match_id, balls)
            await clock.advance(2.5)
            await asyncio.gather(*(each.poll() for each in all_of_them))
        for match_id, token in tokens.items():
            stamps = [push.timestamp for push in phones.of(token)]
            assert stamps == sorted(set(stamps))
            assert phones.of(token)[-1].event == "end"
            memory = await all_of_them[0].memory(match_id)
            assert len(
                {(event.identity, event.ball_id) for event in memory.published_events}
            ) == len(memory.published_events)
        events = [event for each in all_of_them for event in each.published.events]
        told = [
            event
            for match_id in matches
            for event in (await all_of_them[0].memory(match_id)).published_events
        ]
        assert len(events) == len(told)


async def test_a_dead_instances_match_goes_on_elsewhere_within_the_locks_time(
    engine: Engine, clock: ManualClock
) -> None:
    """Until the lock is over nobody touches it; then the next poll of another instance takes it."""
    scores, phones, match_id = Scores(clock), Phones(), made_up.number()
    mortal = Mortal(engine)
    async with (
        instance(engine, clock, scores, phones, name="survivor") as survivor,
        instance(mortal, clock, scores, phones, name="doomed") as doomed,
    ):
        token = await survivor.follow(match_id, made_up.name())
        scores.now[match_id] = said(match_id, 3)

        def die(_: object) -> None:
            mortal.die()

        phones.before = die
        await doomed.poll()
        assert mortal.is_dead
        phones.before = lambda _: None
        phones.pushed.clear()
        scores.now[match_id] = said(match_id, 6)
        waited = 0.0
        while not phones.pushed:
            await clock.advance(2.5)
            waited += 2.5
            await survivor.poll()
        assert 7.5 <= waited <= 12.5
        assert phones.of(token)[-1].score == "17/1 -"
        scores.now[match_id] = said(match_id, len(WORDS))
        await clock.advance(2.5)
        await survivor.poll()
        assert (await survivor.record(match_id)).poller_state is PollerState.ENDED


async def test_whoever_sees_to_a_match_last_keeps_its_record_fresh(
    engine: Engine, clock: ManualClock
) -> None:
    """Also where nothing changes any more: otherwise the match would be taken for one that has lost its instance."""
    scores, phones, match_id = Scores(clock), Phones(), made_up.number()
    async with instance(engine, clock, scores, phones, name="first") as first:
        scores.now[match_id] = said(match_id, 3)
        await first.poll()
    async with instance(engine, clock, scores, phones, name="second") as second:
        for _ in range(20):
            await clock.advance(2.5)
            await second.poll()
            record = await second.record(match_id)
            assert clock.milliseconds() - record.last_updated_at <= 12_500
        assert (await second.record(match_id)).owner == "second"
