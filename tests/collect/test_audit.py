"""The audit trail is written beside the work: whatever becomes of it, nothing else notices."""

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
    """Keeps events, fails while told to, and waits while told to."""

    events: list[tuple[AuditEvent, int]] = field(default_factory=list)
    is_broken: bool = False
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(self, event: AuditEvent, number: int = 1) -> bool:
        await self.is_open.wait()
        if self.is_broken:
            raise Unavailable("The store is unavailable")
        if any(
            (kept.request_id, kept.epoch, new_location) == (event.request_id, event.epoch, number)
            for kept, new_location in self.events
        ):
            return False
        self.events.append((event, number))
        return True


def trail_on(table: Table, capacity: int = 100) -> AuditTrail:
    return AuditTrail(table, ManualClock(), SECRET, capacity)  # type: ignore[arg-type]


async def test_a_table_that_fails_loses_the_event_and_nothing_else() -> None:
    """Later events are written again."""
    table = Table(is_broken=True)
    table.is_open.set()
    async with trail_on(table) as trail:
        trail.record("AUTH_LOGIN", "ann")
        await trail.flush()
        table.is_broken = False
        trail.record("AUTH_LOGOUT", "ann")
    assert [event.event_type for event, _ in table.events] == ["AUTH_LOGOUT"]
    assert trail.dropped == 1


async def test_a_table_that_hangs_makes_nobody_wait() -> None:
    """Recording returns at once, up to the bound and beyond; what does not fit is counted."""
    table = Table()
    async with trail_on(table, capacity=10) as trail:
        for _ in range(50):
            trail.record("AUTH_LOGIN", "ann")
        assert trail.dropped >= 39
        table.is_open.set()
    assert len(table.events) + trail.dropped == 50


async def test_the_end_waits_a_few_seconds_and_no_longer() -> None:
    """A table that never answers does not keep the server from stopping."""
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


async def test_facts_are_masked_and_addresses_are_hashed_with_a_key() -> None:
    """Even where somebody passes a secret by mistake."""
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
async def test_events_of_one_request_get_places_of_their_own(count: int) -> None:
    """None overwrites another."""
    table = Table()
    table.is_open.set()
    async with trail_on(table) as trail:
        for _ in range(count):
            trail.record("MILESTONE_PART_MINTED", "ann")
    assert len(table.events) == count
