"""The count of minted parts is that of the audit trail, however the looks fall; and it has a bound."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tally.collect.model import AuditEvent
from tally.collect.repository.audit import COMMIT_COLLECT_AUDIT, AuditRepository
from tally.collect.service.audit_search import AuditSearch
from tally.console.mint_counter import MINTED, MOST, PAGE, MintCounter
from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.store.sqlite import open_sqlite
from tally.store.store import Store


class Trail:
    """An audit trail on a store, and a count of it."""

    def __init__(self, repository: AuditRepository, clock: ManualClock) -> None:
        self.repository = repository
        self.clock = clock
        self.minted = MintCounter(AuditSearch(repository, clock))

    async def mint(self, count: int, seconds_ago: int = 0) -> None:
        for part in range(count):
            request = new_uuid()
            epoch = self.clock.seconds() - seconds_ago
            event = AuditEvent(
                MINTED, "ana", epoch, request, request, {"milestone": "m", "part": part}, None
            )
            assert await self.repository.append(event, 1)

    async def counted(self) -> int:
        await self.minted.look()
        return self.minted.count

    def latest_at(self) -> int | None:
        return None if self.minted.latest is None else self.minted.latest.epoch


@pytest.fixture
async def trail(tmp_path: Path) -> AsyncIterator[Trail]:
    clock = ManualClock(datetime(2026, 1, 31, 23, 0, tzinfo=UTC))
    async with open_sqlite(tmp_path) as engine:
        await engine.ensure_table(COMMIT_COLLECT_AUDIT)
        yield Trail(AuditRepository(Store(engine, clock)), clock)


async def test_every_part_is_counted_once_also_one_that_is_written_late(trail: Trail) -> None:
    await trail.mint(PAGE + 20, seconds_ago=900)
    await trail.mint(3)
    assert await trail.counted() == PAGE + 23
    await trail.mint(2)
    await trail.mint(1, seconds_ago=20)
    assert await trail.counted() == PAGE + 26
    await trail.clock.advance(300)
    await trail.mint(4)
    for _ in range(2):
        assert await trail.counted() == PAGE + 30
    assert trail.latest_at() == trail.clock.seconds()
    assert not trail.minted.is_more


async def test_a_new_month_begins_with_nothing(trail: Trail) -> None:
    await trail.mint(2)
    assert await trail.counted() == 2
    await trail.clock.advance(3_600)
    assert await trail.counted() == 0
    assert trail.latest_at() is None
    await trail.mint(1)
    assert await trail.counted() == 1


async def test_the_first_look_does_not_go_back_for_ever(trail: Trail) -> None:
    await trail.mint(MOST + PAGE, seconds_ago=600)
    assert await trail.counted() == MOST
    assert trail.minted.is_more
    await trail.mint(1)
    assert await trail.counted() == MOST + 1
    assert trail.minted.is_more
