"""The audit trail writes in the background and never affects requests."""

import asyncio
from dataclasses import dataclass, field

import pytest

from tally.collect.model.records import AuditEvent
from tally.collect.service.audit import FLUSH_SECONDS, AuditTrail
from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tests.collect.service_harness import SECRET


@dataclass
class Table:
    """A fake repository that can fail or block."""

    events: list[tuple[AuditEvent, int]] = field(default_factory=list)
    is_broken: bool = False
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(self, event: AuditEvent, number: int = 1) -> bool:
        await self.is_open.wait()
        if self.is_broken:
            raise Unavailable("The store is unavailable")
        if any(
            (stored.request_id, stored.epoch, position) == (event.request_id, event.epoch, number)
            for stored, position in self.events
        ):
            return False
        self.events.append((event, number))
        return True


def trail_on(table: Table, capacity: int = 100) -> AuditTrail:
    return AuditTrail(table, ManualClock(), SECRET, capacity)  # type: ignore[arg-type]


async def test_a_failed_write_drops_only_that_event() -> None:
    """Later events are written."""
    table = Table(is_broken=True)
    table.is_open.set()
    async with trail_on(table) as trail:
        trail.record("AUTH_LOGIN", "ann")
        await trail.flush()
        table.is_broken = False
        trail.record("AUTH_LOGOUT", "ann")
    assert [event.event_type for event, _ in table.events] == ["AUTH_LOGOUT"]
    assert trail.dropped == 1


async def test_a_blocked_table_does_not_block_recording() -> None:
    """Recording returns immediately; events beyond the capacity are counted as dropped."""
    table = Table()
    async with trail_on(table, capacity=10) as trail:
        for _ in range(50):
            trail.record("AUTH_LOGIN", "ann")
        assert trail.dropped >= 39
        table.is_open.set()
    assert len(table.events) + trail.dropped == 50


async def test_shutdown_waits_for_a_limited_time() -> None:
    """A blocked table does not prevent the server from stopping."""
    table, clock = Table(), ManualClock()
    trail = AuditTrail(table, clock, SECRET)  # type: ignore[arg-type]

    async def use() -> None:
        async with trail:
            trail.record("AUTH_LOGIN", "ann")

    ending = asyncio.create_task(use())
    await clock.until_sleeping()
    assert not ending.done()
    await clock.advance(FLUSH_SECONDS)
    await asyncio.wait_for(ending, 10)
    assert table.events == []


async def test_facts_are_masked_and_addresses_are_hashed() -> None:
    """Also if a caller passes a secret by mistake."""
    table = Table()
    table.is_open.set()
    async with trail_on(table) as trail:
        trail.record(
            "STRAVA_CONNECTED", "ann", {"access_token": "very-secret", "athlete": 7}, ip="192.0.2.7"
        )
    event, _ = table.events[0]
    assert event.facts["athlete"] == 7
    assert "very-secret" not in str(event)
    assert "192.0.2.7" not in str(event)
    assert event.ip_hash


@pytest.mark.parametrize("count", [1, 5])
async def test_events_of_one_request_have_distinct_keys(count: int) -> None:
    """No event overwrites another."""
    table = Table()
    table.is_open.set()
    async with trail_on(table) as trail:
        for _ in range(count):
            trail.record("MILESTONE_PART_MINTED", "ann")
    assert len(table.events) == count
