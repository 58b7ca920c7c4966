"""Random IDs are version 4 UUIDs; sortable IDs sort by creation time."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tally.kit.clock import ManualClock, SystemClock
from tally.kit.ids import ALPHABET, SortableIds, new_uuid


def test_uuids_have_version_4_and_are_unique() -> None:
    created = {new_uuid() for _ in range(100)}
    assert len(created) == 100
    assert {uuid.UUID(text).version for text in created} == {4}


@given(st.lists(st.integers(min_value=-5000, max_value=5000), min_size=2, max_size=50))
def test_each_sortable_id_is_greater_than_the_one_before(steps: list[int]) -> None:
    """This holds however the clock moves: forward, not at all or back."""

    class JumpingClock(SystemClock):
        milliseconds_now = 1_700_000_000_000

        def time_ns(self) -> int:
            return self.milliseconds_now * 1_000_000

    clock = JumpingClock()
    ids = SortableIds(clock)
    created = []
    for step in steps:
        clock.milliseconds_now += step
        created.append(ids.next())
    assert created == sorted(created)
    assert len(set(created)) == len(created)
    assert all(len(text) == 26 and set(text) <= set(ALPHABET) for text in created)


def test_ids_of_two_generators_sort_by_time() -> None:
    """An ID of a later millisecond is greater, whichever generator created it."""
    early = SortableIds(
        ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), lambda bits: 2**bits - 1
    ).next()
    late = SortableIds(
        ManualClock(datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)), lambda _: 0
    ).next()
    assert early < late


def test_an_overflow_increments_the_millisecond() -> None:
    ids = SortableIds(ManualClock(), lambda bits: 2**bits - 1)
    first, second = ids.next(), ids.next()
    assert first < second
    assert second[:10] > first[:10]


def test_threads_never_get_the_same_id() -> None:
    ids = SortableIds(ManualClock())
    with ThreadPoolExecutor(4) as pool:
        created = list(pool.map(lambda _: ids.next(), range(2000)))
    assert len(set(created)) == 2000
