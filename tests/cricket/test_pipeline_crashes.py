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
from tests.cricket.mortal import Died, Mortal
from tests.cricket.pitch import Instance, Phones, Scores, instance, pitch_engine
from tests.cricket.play import Play, feed_of

MAX_WRITES: Final = 120
FIRST: Final = "1 4 W 6 . 1"
POLLS: Final = (
    (FIRST, "", MatchStatus.IN_PLAY),
    (f"{FIRST} 6 6 W", "6 6 6 W 4 6", MatchStatus.FINISHED),
)


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    async with pitch_engine(tmp_path_factory.mktemp("crashes")) as opened:
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
    one: Instance, scores: Scores, match_id: str, done: int = 0, mortal: Mortal | None = None
) -> int:
    """Poll after poll from number `done` on; how many were over when the process died, or all."""
    assert isinstance(one.clock, ManualClock)
    for number, feed in enumerate(feeds(match_id)):
        if number >= done:
            scores.now[match_id] = feed
            await one.clock.advance(2.5)
            with contextlib.suppress(Died):
                await one.poll()
            if mortal is not None and mortal.is_dead:
                return number
    return len(POLLS)


async def reference(engine: Engine, clock: ManualClock) -> list[tuple[str, int, str, int]]:
    """The events of a run in which nobody dies."""
    match_id, scores, phones = made_up.number(), Scores(clock), Phones()
    async with instance(engine, clock, scores, phones) as one:
        await play_through(one, scores, match_id)
        return told((await one.memory(match_id)).published_events)


def expect_good_pushes(phones: Phones, token: str) -> None:
    """Never an older state after a newer one, never two states with one timestamp, and the end at the end."""
    pushes = phones.of(token)
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
        match_id, scores, phones = made_up.number(), Scores(clock), Phones()
        mortal = Mortal(engine, writes, after=after)
        async with instance(engine, clock, scores, phones, name="nobody") as before:
            tokens = [await before.follow(match_id, made_up.name()) for _ in range(2)]
        async with instance(mortal, clock, scores, phones, name="doomed") as doomed:
            done = await play_through(doomed, scores, match_id, 0, mortal)
        await clock.advance(11)  # the lock is over
        async with instance(engine, clock, scores, phones, name="heir") as heir:
            await play_through(heir, scores, match_id, min(done, len(POLLS) - 1))
            assert told((await heir.memory(match_id)).published_events) == expected
            assert (await heir.record(match_id)).poller_state is PollerState.ENDED
        for token in tokens:
            expect_good_pushes(phones, token)
        if not mortal.is_dead:
            return
    pytest.fail(f"the match takes more than {MAX_WRITES} writes")


async def test_a_process_that_dies_in_its_fan_out_leaves_the_rest_to_the_next(
    engine: Engine, clock: ManualClock
) -> None:
    """The state that not everybody had is delivered again, and not to be taken for an older one."""
    match_id, scores, phones = made_up.number(), Scores(clock), Phones()
    mortal = Mortal(engine)
    async with instance(mortal, clock, scores, phones, name="doomed") as doomed:
        tokens = [await doomed.follow(match_id, made_up.name()) for _ in range(1200)]
        scores.now[match_id] = feeds(match_id)[0]

        def die_in_the_middle(_: object) -> None:
            if len(phones.pushed) == 100:
                mortal.die()

        phones.before = die_in_the_middle
        await doomed.poll()
    reached = len(phones.pushed)
    assert 100 <= reached < 1200
    await clock.advance(11)
    async with instance(engine, clock, scores, phones, name="heir") as heir:
        await heir.poll()
        assert len({push.timestamp for push in phones.pushed}) == 1
        assert {push.token for push in phones.pushed} == set(tokens)
        count = len(phones.pushed)
        await clock.advance(2.5)
        await heir.poll()
        assert len(phones.pushed) == count
