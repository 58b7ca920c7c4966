"""The metrics of Live Activities: by status, confirmed share, and only from recent sweeps."""

import math
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry

from tally.cricket.model.records import ActivityStatus, LiveActivity
from tally.cricket.service.activities.activity_counts import ActivityCounts
from tally.kit.clock import ManualClock
from tests.cricket import factories


async def activities(*statuses: ActivityStatus) -> AsyncIterator[LiveActivity]:
    for status in statuses:
        yield factories.activity("1", status=status)


async def test_a_sweep_counts_the_activities_of_its_match(clock: ManualClock) -> None:
    registry = CollectorRegistry()
    counts = ActivityCounts(clock, registry)
    assert math.isnan(counts.confirmed_ratio())
    active, pending, ended = ActivityStatus.ACTIVE, ActivityStatus.PENDING, ActivityStatus.ENDED
    for match_id, statuses in (("1", (active,)), ("1", (active, active, active, pending, ended))):
        swept = counts.counted(match_id, activities(*statuses))
        assert len([activity async for activity in swept]) == len(statuses)
    name = "tally_cricket_activities"
    assert registry.get_sample_value(name, {"status": "active"}) == 3
    assert registry.get_sample_value(name, {"status": "pending"}) == 1
    assert registry.get_sample_value(f"{name}_confirmed_ratio") == 0.75
    await clock.advance(61)
    assert registry.get_sample_value(name, {"status": "active"}) == 0
