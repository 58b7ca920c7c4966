"""Recorded matches through the simulator, the poller and the pipeline."""

import random
from collections import Counter
from pathlib import Path

import pytest

from tally.sim.sportmonks.mistakes import Mistakes, random_mistakes
from tests.e2e.cricket_harness import CricketHarness, open_cricket_harness
from tests.recorded import (
    NAMES,
    count_player_events,
    event_summaries,
    expect_scorecards,
    expected_events,
    expected_player_events,
    recorded,
)


async def play_matches(harness: CricketHarness, chance: random.Random, max_steps: int) -> None:
    """Play all matches with polls in between; many polls find nothing new."""
    matches = list(harness.sportmonks.playbacks.values())
    while not all(match.progress.is_over for match in matches):
        for match in matches:
            match.step(
                min(
                    chance.choice((0, max_steps // 2, max_steps)),
                    len(match.steps) - 1 - match.position,
                )
            )
        await harness.poll()
    for _ in range(5):
        await harness.poll()


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_match_yields_its_scorecards_and_events(name: str, tmp_path: Path) -> None:
    """Each event is published once and in order, however many balls lie between two polls."""
    chance = random.Random(name)
    async with open_cricket_harness(tmp_path, recorded(name)) as harness:
        await harness.sync()
        (match,) = harness.sportmonks.playbacks.values()
        await play_matches(harness, chance, chance.choice((12, 20, 40, 90)))
        assert event_summaries(
            (await harness.state(match.match.id)).published_events
        ) == expected_events(name)
        expect_scorecards(await harness.cached_feed(match.match.id), name)
        match.step()
        for seconds in (30, 2.5, 600):  # Two responses confirm the result; then it is final.
            await harness.poll(seconds)
        await harness.sync()
        expect_scorecards(await harness.cached_feed(match.match.id), name)
        fixture = await harness.cricket.repositories.fixtures.get(name)
        assert fixture is not None
        assert (fixture.is_live, fixture.archived_at is not None) == (False, True)


@pytest.mark.parametrize("name", ["1082625", "1175368", "729309"])
async def test_late_and_duplicate_balls_and_outdated_responses_change_nothing(
    name: str, tmp_path: Path
) -> None:
    chance = random.Random(name)
    async with open_cricket_harness(tmp_path, recorded(name)) as harness:
        await harness.sync()
        (match,) = harness.sportmonks.playbacks.values()
        late = {
            place: chance.randint(1, 3)
            for place in range(match.deliveries)
            if chance.random() < 0.1
        }
        match.mistakes = Mistakes(late=late, twice=frozenset(range(0, match.deliveries, 7)))
        match.lags.extend(chance.choice((0, 0, 0, 2, 9)) for _ in range(40))
        await play_matches(harness, chance, 12)
        assert sorted(
            event_summaries((await harness.state(match.match.id)).published_events)
        ) == sorted(expected_events(name))
        expect_scorecards(await harness.cached_feed(match.match.id), name)


@pytest.mark.parametrize("name", ["1304076", "1181766", "419107"])
async def test_corrected_balls_correct_events_and_scorecards(name: str, tmp_path: Path) -> None:
    """All events are published once, and the final scorecards are correct."""
    chance = random.Random(name)
    async with open_cricket_harness(tmp_path, recorded(name)) as harness:
        await harness.sync()
        (match,) = harness.sportmonks.playbacks.values()
        match.mistakes = random_mistakes(chance, match.deliveries, 0.06)
        await play_matches(harness, chance, 12)
        published = (await harness.state(match.match.id)).published_events
        assert expected_player_events(name) - count_player_events(published) == Counter()
        assert len({(event.identity, event.ball_id) for event in published}) == len(published)
        expect_scorecards(await harness.cached_feed(match.match.id), name)


async def test_several_matches_are_processed_concurrently(tmp_path: Path) -> None:
    """One request returns all of them."""
    names = NAMES[:4]
    chance = random.Random(4)
    async with open_cricket_harness(tmp_path, *(recorded(name) for name in names)) as harness:
        await harness.sync()
        await play_matches(harness, chance, 40)
        for name in names:
            assert event_summaries(
                (await harness.state(int(name))).published_events
            ) == expected_events(name)
            expect_scorecards(await harness.cached_feed(int(name)), name)
