"""The mint counter agrees with the audit trail, whenever it is updated, and is bounded."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tally.collect.model.records import AuditEvent
from tally.collect.repository.audit import COMMIT_COLLECT_AUDIT, AuditRepository
from tally.collect.service.audit import AuditSearch
from tally.console.mint_counter import MAX_EVENTS, PAGE_SIZE, PART_MINTED, MintCounter
from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.store.sqlite import open_sqlite
from tally.store.store import Store


class AuditTrailCounter:
    """An audit trail on a store with a mint counter."""

    def __init__(self, repository: AuditRepository, clock: ManualClock) -> None:
        self.repository = repository
        self.clock = clock
        self.counter = MintCounter(AuditSearch(repository, clock))

    async def mint(self, count: int, seconds_ago: int = 0) -> None:
        for part in range(count):
            request = new_uuid()
            epoch = self.clock.seconds() - seconds_ago
            event = AuditEvent(
                PART_MINTED, "ana", epoch, request, request, {"milestone": "m", "part": part}, None
            )
            assert await self.repository.append(event, 1)

    async def count(self) -> int:
        await self.counter.update()
        return self.counter.count

    def latest_at(self) -> int | None:
        return None if self.counter.latest is None else self.counter.latest.epoch


@pytest.fixture
async def trail(tmp_path: Path) -> AsyncIterator[AuditTrailCounter]:
    clock = ManualClock(datetime(2026, 1, 31, 23, 0, tzinfo=UTC))
    async with open_sqlite(tmp_path) as engine:
        await engine.ensure_table(COMMIT_COLLECT_AUDIT)
        yield AuditTrailCounter(AuditRepository(Store(engine, clock)), clock)


async def test_every_part_is_counted_once_even_if_it_is_written_late(
    trail: AuditTrailCounter,
) -> None:
    await trail.mint(PAGE_SIZE + 20, seconds_ago=900)
    await trail.mint(3)
    assert await trail.count() == PAGE_SIZE + 23
    await trail.mint(2)
    await trail.mint(1, seconds_ago=20)
    assert await trail.count() == PAGE_SIZE + 26
    await trail.clock.advance(300)
    await trail.mint(4)
    for _ in range(2):
        assert await trail.count() == PAGE_SIZE + 30
    assert trail.latest_at() == trail.clock.seconds()
    assert not trail.counter.is_more


async def test_the_count_starts_at_zero_every_month(trail: AuditTrailCounter) -> None:
    await trail.mint(2)
    assert await trail.count() == 2
    await trail.clock.advance(3_600)
    assert await trail.count() == 0
    assert trail.latest_at() is None
    await trail.mint(1)
    assert await trail.count() == 1


async def test_the_first_update_is_bounded(trail: AuditTrailCounter) -> None:
    await trail.mint(MAX_EVENTS + PAGE_SIZE, seconds_ago=600)
    assert await trail.count() == MAX_EVENTS
    assert trail.counter.is_more
    await trail.mint(1)
    assert await trail.count() == MAX_EVENTS + 1
    assert trail.counter.is_more
