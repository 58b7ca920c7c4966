"""The repository of `cricket-fixtures`."""

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import Fixture
from tally.cricket.repository.fixtures import CRICKET_FIXTURES, LIVE, FixtureRepository
from tally.store.api import Engine, Scan
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.factories import MOMENT


@pytest.fixture
def fixtures(store: Store) -> FixtureRepository:
    return FixtureRepository(store)


async def test_a_fixture_is_read_as_it_was_written(fixtures: FixtureRepository) -> None:
    """With all fields, and with defaults for missing ones."""
    bare = factories.fixture()
    full = factories.fixture(
        status=MatchStatus.IN_PLAY,
        round="Final",
        venue_id="3",
        note="Lions won",
        toss_team_id="1",
        elected="batting",
        winner_team_id="1",
        live_updated_at=MOMENT,
        toss_notified_at=MOMENT,
        replay_of="77",
        replay_expires_at=MOMENT + 1,
    )
    await fixtures.write_batch([bare, full])
    assert await fixtures.get(bare.match_id) == bare
    assert await fixtures.get(full.match_id) == full
    assert await fixtures.get(factories.number()) is None


async def test_fixtures_are_written_and_read_in_batches(fixtures: FixtureRepository) -> None:
    """More than a request can contain; missing fixtures are omitted."""
    written = [factories.fixture() for _ in range(130)]
    await fixtures.write_batch(written)
    found = await fixtures.get_many(
        [*(fixture.match_id for fixture in written), factories.number()]
    )
    assert found == {fixture.match_id: fixture for fixture in written}
    assert await fixtures.get_many([]) == {}


async def test_matches_of_a_league_are_paginated_by_start_time(fixtures: FixtureRepository) -> None:
    """The range is inclusive, and other leagues are excluded."""
    code = factories.name("league")
    written = [
        factories.fixture(league_code=code, start_time=f"2096-10-{day:02}T12:00:00Z")
        for day in (5, 3, 4, 1, 9)
    ]
    await fixtures.write_batch([*written, factories.fixture(start_time="2096-10-04T12:00:00Z")])
    first, start = await fixtures.by_date(code, "2096-10-03T12:00:00Z", "2096-10-05T12:00:00Z", 2)
    assert start is not None
    second, _ = await fixtures.by_date(
        code, "2096-10-03T12:00:00Z", "2096-10-05T12:00:00Z", 2, start
    )
    assert [fixture.start_time[8:10] for fixture in first + second] == ["03", "04", "05"]


async def test_starting_soon_excludes_live_and_archived_matches(
    fixtures: FixtureRepository,
) -> None:
    """Leagues are merged by start time; a repeated league counts once."""
    one, other, silent = (factories.name("league") for _ in range(3))
    soon = factories.fixture(league_code=one, start_time="2096-10-02T12:20:00Z")
    sooner = factories.fixture(league_code=other, start_time="2096-10-02T12:10:00Z")
    await fixtures.write_batch(
        [
            soon,
            sooner,
            factories.fixture(league_code=one, live_updated_at=MOMENT),
            factories.fixture(league_code=one, archived_at=MOMENT),
            factories.fixture(league_code=other, start_time="2096-10-02T12:31:00Z"),
            factories.fixture(league_code=silent),
        ]
    )
    found = await fixtures.starting_soon(
        [one, other, one], "2096-10-02T12:00:00Z", "2096-10-02T12:30:00Z"
    )
    assert found == [sooner, soon]


async def test_an_update_changes_named_fields_and_creates_nothing(
    fixtures: FixtureRepository,
) -> None:
    """None removes a field; an update of a missing match creates nothing."""
    made = factories.fixture(note="rain")
    await fixtures.write_batch([made])
    changed = await fixtures.update(
        made.match_id, status=MatchStatus.DELAYED, note=None, toss_team_id="2"
    )
    assert changed == replace(made, status=MatchStatus.DELAYED, note="", toss_team_id="2")
    assert await fixtures.get(made.match_id) == changed
    unknown = factories.number()
    assert await fixtures.update(unknown, live_updated_at=MOMENT) is None
    assert not await fixtures.archive(unknown, MOMENT)
    assert await fixtures.get(unknown) is None
    assert unknown not in {fixture.match_id for fixture in await fixtures.live()}


async def test_updates_and_archiving_never_recreate_a_deleted_fixture(
    fixtures: FixtureRepository,
) -> None:
    """A deleted replay stays deleted in any order of writes."""
    replays = [factories.fixture(replay_of="1", live_updated_at=MOMENT) for _ in range(10)]
    await fixtures.write_batch(replays)

    async def race(replay: Fixture) -> None:
        steps = [
            fixtures.delete_replay(replay.match_id),
            *(
                fixtures.update(replay.match_id, live_updated_at=MOMENT + second)
                for second in range(4)
            ),
            *(fixtures.archive(replay.match_id, MOMENT) for _ in range(2)),
        ]
        random.shuffle(steps)
        await asyncio.gather(*steps)

    await asyncio.gather(*(race(replay) for replay in replays))
    ids = {record.match_id for record in replays}
    assert await fixtures.get_many(ids) == {}
    assert ids.isdisjoint(fixture.match_id for fixture in await fixtures.live())


async def test_an_archived_match_is_not_live(
    fixtures: FixtureRepository,
) -> None:
    """Other fields are preserved, and a match can become live again."""
    made = factories.fixture(live_updated_at=MOMENT)
    await fixtures.write_batch([made])
    assert made in await fixtures.live()
    assert await fixtures.archive(made.match_id, MOMENT + 5)
    assert await fixtures.get(made.match_id) == replace(
        made, live_updated_at=None, archived_at=MOMENT + 5
    )
    assert made.match_id not in {fixture.match_id for fixture in await fixtures.live()}
    await fixtures.update(made.match_id, live_updated_at=MOMENT + 9, archived_at=None)
    assert replace(made, live_updated_at=MOMENT + 9) in await fixtures.live()


async def test_only_replays_are_deleted(fixtures: FixtureRepository) -> None:
    """A match that is not a replay is never deleted."""
    real, replay = factories.fixture(), factories.fixture(replay_of="1", replay_expires_at=MOMENT)
    await fixtures.write_batch([real, replay])
    assert await fixtures.delete_replay(replay.match_id)
    assert not await fixtures.delete_replay(replay.match_id)
    assert not await fixtures.delete_replay(real.match_id)
    assert set(await fixtures.get_many([real.match_id, replay.match_id])) == {real.match_id}


async def test_the_fixtures_of_a_league_are_paginated(fixtures: FixtureRepository) -> None:
    """Each fixture of the league appears once."""
    league_id = factories.number()
    wanted = [factories.fixture(league_id=league_id) for _ in range(7)]
    await fixtures.write_batch([*wanted, *(factories.fixture() for _ in range(7))])
    found, start = await fixtures.by_league(league_id, 3)
    while start is not None:
        page, start = await fixtures.by_league(league_id, 3, start)
        found += page
    assert sorted(fixture.match_id for fixture in found) == sorted(
        fixture.match_id for fixture in wanted
    )


@pytest.mark.soak
@settings(max_examples=15)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["write", "write live", "poll", "archive", "finish", "delete"]),
        ),
        max_size=40,
    )
)
def test_the_live_index_contains_exactly_the_live_fixtures(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    """After every write, the index contains the items with `liveUpdatedAt` only."""

    async def play() -> None:
        async with open_sqlite(tmp_path_factory.mktemp("live")) as engine:
            await engine.create_table(CRICKET_FIXTURES)
            fixtures = FixtureRepository(Store(engine))
            for number, (which, step) in enumerate(steps):
                await _step(fixtures, f"m{which}", step, MOMENT + number)
                await expect_index_and_table_to_agree(engine)

    asyncio.run(play())


async def _step(fixtures: FixtureRepository, match_id: str, step: str, moment: int) -> None:
    fixture = factories.fixture(match_id=match_id, replay_of="1")
    if step == "write":
        await fixtures.write_batch([fixture])
    elif step == "write live":
        await fixtures.write_batch([replace(fixture, live_updated_at=moment)])
    elif step == "poll":
        await fixtures.update(match_id, live_updated_at=moment, archived_at=None)
    elif step == "archive":
        await fixtures.archive(match_id, moment)
    elif step == "finish":
        await fixtures.update(match_id, live_updated_at=None, status=MatchStatus.FINISHED)
    else:
        await fixtures.delete_replay(match_id)


async def expect_index_and_table_to_agree(engine: Engine) -> None:
    table = (await engine.scan(Scan(CRICKET_FIXTURES))).items
    index = (await engine.scan(Scan(CRICKET_FIXTURES, LIVE))).items
    live = [item for item in table if "liveUpdatedAt" in item]
    assert sorted(item["matchId"] for item in index) == sorted(item["matchId"] for item in live)
    assert all(item["live"] == "1" for item in live)
