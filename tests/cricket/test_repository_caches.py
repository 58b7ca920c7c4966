"""State hashes, display states, cached fixtures and processing states."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from tally.cricket.model.records import (
    ENRICHMENT_LEAD_MS,
    ENRICHMENT_MARGIN_MS,
    ENRICHMENT_TAIL_MS,
    CachedFixture,
    epoch_ms,
    format_start_time,
)
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.repository.fixture_cache import CRICKET_FIXTURE_CACHE, FixtureCacheRepository
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.store.api import Engine, Get
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.factories import DAY, MOMENT, NOW
from tests.cricket.faulty_engines import InterleavingEngine

ENRICHMENT = {"home": {"name": "Lions", "code": "LIO"}, "league": "Cup"}


@pytest.fixture
def cache(store: Store) -> FixtureCacheRepository:
    return FixtureCacheRepository(store)


async def test_each_view_of_a_match_has_a_hash(store: Store) -> None:
    """Hashes of views are independent; a deleted hash is gone."""
    hashes = StateHashRepository(store)
    neutral = factories.state_hash()
    home = replace(neutral, team_id="1", hash="def")
    await hashes.put(neutral)
    await hashes.put(home)
    await hashes.put(replace(neutral, hash="xyz", updated_at=MOMENT + 1))
    assert await hashes.get(neutral.match_id, "neutral") == replace(
        neutral, hash="xyz", updated_at=MOMENT + 1
    )
    assert await hashes.get(neutral.match_id, "1") == home
    await hashes.delete(neutral.match_id, "1")
    assert await hashes.get(neutral.match_id, "1") is None
    assert await hashes.get(neutral.match_id, "neutral") is not None


async def test_an_expired_display_state_is_not_returned(store: Store) -> None:
    """Views expire independently, whether or not the store has deleted them."""
    displays = DisplayCacheRepository(store)
    cached_display = factories.cached_display(expires_at=NOW + 30)
    await displays.put(cached_display)
    assert await displays.get(cached_display.match_id, "neutral", NOW + 29) == cached_display
    assert await displays.get(cached_display.match_id, "neutral", NOW + 30) is None
    assert await displays.get(cached_display.match_id, "1", NOW) is None


async def test_the_processing_state_never_goes_back(store: Store) -> None:
    """A late write of a former owner is rejected; an expired state can be replaced."""
    repository = ProcessingRepository(store)
    processing = factories.processing(last_ball_id=7, content='[{"id":7}]' * 1000)
    assert await repository.put(processing)
    assert await repository.get(processing.match_id, NOW) == processing
    further = replace(processing, last_ball_id=9, content="[]")
    assert await repository.put(further)
    assert not await repository.put(replace(processing, last_ball_id=8))
    corrected = replace(further, content="[1]")
    assert await repository.put(corrected)
    assert await repository.get(processing.match_id, NOW) == corrected
    assert await repository.get(processing.match_id, NOW + 7 * DAY) is None
    assert await repository.put(
        replace(
            processing,
            last_ball_id=1,
            updated_at=MOMENT + 7 * DAY * 1000,
            expires_at=NOW + 14 * DAY,
        )
    )


async def test_the_cache_is_hydrated_from_the_table(store: Store) -> None:
    """For given matches or for all; expired states are excluded."""
    repository = ProcessingRepository(store)
    states = [factories.processing() for _ in range(4)]
    old = factories.processing(expires_at=NOW)
    await asyncio.gather(*(repository.put(entry) for entry in (*states, old)))
    wanted = [
        states[0].match_id,
        states[2].match_id,
        old.match_id,
        factories.number(),
        states[0].match_id,
    ]
    assert await repository.hydrate(wanted, NOW) == [states[0], states[2]]
    everything = await repository.hydrate(None, NOW)
    assert [entry for entry in states if entry not in everything] == []
    assert old not in everything


async def test_a_cached_fixture_is_returned_until_it_expires(cache: FixtureCacheRepository) -> None:
    """By id, in a batch, and by league in order of start time."""
    league_id = factories.name("league")
    late = factories.cached_fixture(
        league_id=league_id, starting_at="2096-10-04T12:00:00Z", content="{}" * 300_000
    )
    early = factories.cached_fixture(league_id=league_id, enrichment=ENRICHMENT, enriched_at=MOMENT)
    for entry in (late, early):
        assert await cache.put(entry) == entry
    ids = [late.match_id, early.match_id]
    assert await cache.get(late.match_id, NOW) == late
    assert await cache.get_many([*ids, factories.number()], NOW) == {
        late.match_id: late,
        early.match_id: early,
    }
    assert await cache.by_league(league_id, "2", "3", NOW) == [early, late]
    assert {entry.match_id async for entry in cache.all(NOW)} >= set(ids)
    over = NOW + 600
    assert await cache.get(late.match_id, over) is None
    assert await cache.get_many(ids, over) == {}
    assert await cache.by_league(league_id, "2", "3", over) == []
    assert {entry.match_id async for entry in cache.all(over)}.isdisjoint(ids)


async def test_enrichment_requires_an_entry_inside_the_window(
    cache: FixtureCacheRepository,
) -> None:
    """It creates no entry, revives no expired one, and fails outside the window."""
    near = factories.cached_fixture()
    unknown = factories.number()
    assert not await cache.update_enrichment(unknown, ENRICHMENT, MOMENT)
    assert await cache.get(unknown, NOW) is None
    await cache.put(near)
    assert await cache.update_enrichment(near.match_id, ENRICHMENT, MOMENT + 5)
    assert await cache.get(near.match_id, NOW) == replace(
        near, enrichment=ENRICHMENT, enriched_at=MOMENT + 5
    )
    assert not await cache.update_enrichment(near.match_id, {}, MOMENT + 4)
    assert not await cache.update_enrichment(near.match_id, ENRICHMENT, near.expires_at * 1000)
    for starting_at in (
        format_start_time(MOMENT + ENRICHMENT_LEAD_MS + 1000),
        format_start_time(MOMENT - ENRICHMENT_TAIL_MS - 1000),
    ):
        far = factories.cached_fixture(starting_at=starting_at)
        await cache.put(far)
        assert not await cache.update_enrichment(far.match_id, ENRICHMENT, MOMENT)


async def test_a_put_carries_over_stored_enrichment(cache: FixtureCacheRepository) -> None:
    """The newer enrichment is stored."""
    cached_fixture = factories.cached_fixture()
    await cache.put(cached_fixture)
    assert await cache.update_enrichment(cached_fixture.match_id, ENRICHMENT, MOMENT + 5)
    updated = replace(cached_fixture, content='{"id":2}')
    assert await cache.put(updated) == replace(
        updated, enrichment=ENRICHMENT, enriched_at=MOMENT + 5
    )
    newer = replace(updated, enrichment={"league": "Bowl"}, enriched_at=MOMENT + 6)
    assert await cache.put(newer) == newer
    assert await cache.get(cached_fixture.match_id, NOW) == newer


def starts() -> list[str]:
    """Return start times inside the window, at its edge, in its margin and outside."""
    before, after = ENRICHMENT_LEAD_MS, ENRICHMENT_TAIL_MS
    moments = (
        0,
        before,
        before + ENRICHMENT_MARGIN_MS // 2,
        before + 2 * ENRICHMENT_MARGIN_MS,
        -after,
        -after - 2 * ENRICHMENT_MARGIN_MS,
    )
    return [format_start_time(MOMENT + moment) for moment in moments]


@pytest.mark.parametrize("starting_at", starts())
async def test_a_batch_preserves_stored_enrichment(
    cache: FixtureCacheRepository, starting_at: str
) -> None:
    """With batch writes and single updates; newer enrichment of the batch is stored."""
    cached_fixtures = [
        factories.cached_fixture(starting_at=starting_at, enrichment=ENRICHMENT, enriched_at=MOMENT)
        for _ in range(3)
    ]
    fresh = [factories.cached_fixture(starting_at=starting_at) for _ in range(30)]
    await asyncio.gather(*(cache.put(entry) for entry in cached_fixtures))
    bare = replace(cached_fixtures[0], content="new", enrichment=None, enriched_at=None)
    older = replace(
        cached_fixtures[1], content="new", enrichment={"old": 1}, enriched_at=MOMENT - 1
    )
    newer = replace(
        cached_fixtures[2], content="new", enrichment={"new": 1}, enriched_at=MOMENT + 1
    )
    await cache.put_batch([bare, older, newer, *fresh], MOMENT)
    kept = [replace(entry, enrichment=ENRICHMENT, enriched_at=MOMENT) for entry in (bare, older)]
    expected = [*kept, newer, *fresh]
    assert await cache.get_many([entry.match_id for entry in expected], NOW) == {
        entry.match_id: entry for entry in expected
    }


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("starting_at", starts())
async def test_enrichment_added_during_a_batch_is_preserved(
    cache: FixtureCacheRepository, engine: Engine, is_there: bool, starting_at: str
) -> None:
    """A put and an enrichment happen between the read and the write of the batch."""
    entry = factories.cached_fixture(starting_at=starting_at)
    if is_there:
        await cache.put(entry)
    taken: list[bool] = []

    async def meanwhile() -> None:
        await cache.put(replace(entry, content="polled"))
        taken.append(await cache.update_enrichment(entry.match_id, ENRICHMENT, MOMENT + 1))

    racing = FixtureCacheRepository(
        Store(cast("Engine", InterleavingEngine(engine, "batch_get", meanwhile)))
    )
    await racing.put_batch([replace(entry, content="synced")], MOMENT)
    found = await cache.get(entry.match_id, NOW)
    assert found is not None
    assert found.content == "synced"
    assert found.enrichment == (ENRICHMENT if taken == [True] else None)
    assert taken == [
        MOMENT - ENRICHMENT_TAIL_MS <= epoch_ms(starting_at) <= MOMENT + ENRICHMENT_LEAD_MS
    ]


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_batch_and_concurrent_writers_lose_no_enrichment(
    cache: FixtureCacheRepository, engine: Engine, is_there: bool
) -> None:
    """Accepted enrichment is present at the end, for new and old entries."""
    entries = [factories.cached_fixture(starting_at=starting_at) for starting_at in starts()]
    if is_there:
        await cache.put_batch(entries, MOMENT)
    taken: dict[str, int] = {}

    async def enrich(entry: CachedFixture) -> None:
        for number in range(1, 4):
            if await cache.update_enrichment(entry.match_id, {"n": number}, MOMENT + number):
                taken[entry.match_id] = number
            await asyncio.sleep(0)

    async def put(entry: CachedFixture) -> None:
        await cache.put(replace(entry, content="polled"))

    syncs = [
        cache.put_batch([replace(cached, content=f"sync {number}") for cached in entries], MOMENT)
        for number in range(3)
    ]
    await asyncio.gather(
        *syncs, *(put(entry) for entry in entries), *(enrich(entry) for entry in entries)
    )
    for entry in entries:
        found = (
            await engine.get(
                Get(CRICKET_FIXTURE_CACHE, {"matchId": entry.match_id}, consistent=True)
            )
        ).item
        assert found is not None
        assert found.get("enrichment") == (
            {"n": taken[entry.match_id]} if entry.match_id in taken else None
        )
    assert len(taken) >= (3 if is_there else 0)
