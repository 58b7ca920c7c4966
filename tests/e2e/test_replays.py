"""Recorded matches from the first ball to the archive: through the simulator's socket, the poller and the pipeline."""

import random
from collections import Counter
from pathlib import Path

import pytest

from tally.cricket.model.records import PollerState
from tally.sim.sportmonks.mistakes import Mistakes, random_mistakes
from tests.e2e.stadium import Stadium, open_stadium
from tests.recorded import (
    NAMES,
    expect_scorecards,
    expected_doings,
    expected_events,
    recorded,
    told_doings,
    told_events,
)


async def play(stadium: Stadium, chance: random.Random, most: int) -> None:
    """Poll while the matches go on, each by so many steps at most between two polls; many polls find nothing new."""
    matches = list(stadium.sportmonks.broadcasts.values())
    while not all(match.progress.is_over for match in matches):
        for match in matches:
            match.step(
                min(chance.choice((0, most // 2, most)), len(match.steps) - 1 - match.position)
            )
        await stadium.poll()
    for _ in range(5):
        await stadium.poll()


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_match_ends_in_its_scorecards_and_gives_its_events(
    name: str, tmp_path: Path
) -> None:
    """Each event once and in order, however many balls lie between two polls; and then the match is archived."""
    chance = random.Random(name)
    async with open_stadium(tmp_path, recorded(name)) as stadium:
        await stadium.sync()
        (match,) = stadium.sportmonks.broadcasts.values()
        await play(stadium, chance, chance.choice((12, 20, 40, 90)))
        assert told_events(
            (await stadium.memory(match.match.id)).published_events
        ) == expected_events(name)
        expect_scorecards(await stadium.heard(match.match.id), name)
        match.step()
        await stadium.poll(30)
        await stadium.sync()
        expect_scorecards(await stadium.heard(match.match.id), name)
        fixture = await stadium.cricket.repositories.fixtures.get(name)
        assert fixture is not None
        assert (fixture.is_live, fixture.archived_at is not None) == (False, True)
        record = await stadium.cricket.repositories.matches.get(name)
        assert record is not None
        assert record.poller_state is PollerState.ENDED


@pytest.mark.parametrize("name", ["1082625", "1175368", "729309"])
async def test_late_and_doubled_balls_and_old_answers_change_nothing(
    name: str, tmp_path: Path
) -> None:
    chance = random.Random(name)
    async with open_stadium(tmp_path, recorded(name)) as stadium:
        await stadium.sync()
        (match,) = stadium.sportmonks.broadcasts.values()
        late = {
            place: chance.randint(1, 3)
            for place in range(match.deliveries)
            if chance.random() < 0.1
        }
        match.mistakes = Mistakes(late=late, twice=frozenset(range(0, match.deliveries, 7)))
        match.lags.extend(chance.choice((0, 0, 0, 2, 9)) for _ in range(40))
        await play(stadium, chance, 12)
        assert sorted(
            told_events((await stadium.memory(match.match.id)).published_events)
        ) == sorted(expected_events(name))
        expect_scorecards(await stadium.heard(match.match.id), name)


@pytest.mark.parametrize("name", ["1304076", "1181766", "419107"])
async def test_balls_that_were_told_wrongly_are_put_right(name: str, tmp_path: Path) -> None:
    """Everything that happened has been told, nothing of it twice, and the scorecards are right in the end."""
    chance = random.Random(name)
    async with open_stadium(tmp_path, recorded(name)) as stadium:
        await stadium.sync()
        (match,) = stadium.sportmonks.broadcasts.values()
        match.mistakes = random_mistakes(chance, match.deliveries, 0.06)
        await play(stadium, chance, 12)
        told = (await stadium.memory(match.match.id)).published_events
        assert expected_doings(name) - told_doings(told) == Counter()
        assert len({(event.identity, event.ball_id) for event in told}) == len(told)
        expect_scorecards(await stadium.heard(match.match.id), name)


async def test_several_matches_are_followed_at_once(tmp_path: Path) -> None:
    """One request finds all of them, and none is mixed up with another."""
    names = NAMES[:4]
    chance = random.Random(4)
    async with open_stadium(tmp_path, *(recorded(name) for name in names)) as stadium:
        await stadium.sync()
        await play(stadium, chance, 40)
        for name in names:
            assert told_events(
                (await stadium.memory(int(name))).published_events
            ) == expected_events(name)
            expect_scorecards(await stadium.heard(int(name)), name)
