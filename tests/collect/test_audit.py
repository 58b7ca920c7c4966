"""The audit trail writes in the background and never affects requests."""

import asyncio
from dataclasses import dataclass, field

import pytest

from tally.collect.model.records import AuditEvent
from tally.collect.service.audit import FLUSH_SECONDS, AuditTrail
from tally.collect.service.metrics import dropped_audit_events
from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.kit.metrics import Metrics
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


@dataclass
class DroppedEvents:
    """A trail on a table, and the metric of lost events."""

    table: Table
    clock: ManualClock = field(default_factory=ManualClock)
    metrics: Metrics = field(default_factory=Metrics)

    def trail(self, capacity: int = 100) -> AuditTrail:
        dropped = dropped_audit_events(self.metrics)
        return AuditTrail(
            self.table,  # type: ignore[arg-type]
            self.clock,
            SECRET,
            dropped,
            capacity=capacity,
        )

    @property
    def count(self) -> float:
        name = "tally_collect_audit_events_dropped_total"
        return self.metrics.registry.get_sample_value(name) or 0


def trail_on(table: Table) -> AuditTrail:
    return DroppedEvents(table).trail()


async def test_a_failed_write_drops_only_that_event() -> None:
    """Later events are written."""
    table = Table(is_broken=True)
    table.is_open.set()
    dropped = DroppedEvents(table)
    async with dropped.trail() as trail:
        trail.record("AUTH_LOGIN", "ann")
        await trail.flush()
        table.is_broken = False
        trail.record("AUTH_LOGOUT", "ann")
    assert [event.event_type for event, _ in table.events] == ["AUTH_LOGOUT"]
    assert dropped.count == 1


async def test_a_blocked_table_does_not_block_recording() -> None:
    """Recording returns immediately; events beyond the capacity are counted as dropped."""
    table = Table()
    dropped = DroppedEvents(table)
    async with dropped.trail(capacity=10) as trail:
        for _ in range(50):
            trail.record("AUTH_LOGIN", "ann")
        assert dropped.count >= 39
        table.is_open.set()
    assert len(table.events) + dropped.count == 50


async def test_shutdown_waits_for_a_limited_time() -> None:
    """A blocked table does not prevent the server from stopping; every lost event is counted."""
    table, clock = Table(), ManualClock()
    dropped = DroppedEvents(table, clock)

    async def use() -> None:
        async with dropped.trail() as trail:
            for _ in range(3):
                trail.record("AUTH_LOGIN", "ann")

    ending = asyncio.create_task(use())
    await clock.until_sleeping()
    assert not ending.done()
    await clock.advance(FLUSH_SECONDS)
    await asyncio.wait_for(ending, 10)
    assert table.events == []
    assert dropped.count == 3


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
