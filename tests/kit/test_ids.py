"""Random ids are UUIDs of version 4; sortable ids are in the order in which they were made."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tally.kit.clock import ManualClock, SystemClock
from tally.kit.ids import ALPHABET, SortableIds, new_uuid


def test_a_uuid_is_of_version_4_and_new_each_time() -> None:
    made = {new_uuid() for _ in range(100)}
    assert len(made) == 100
    assert {uuid.UUID(text).version for text in made} == {4}


@given(st.lists(st.integers(min_value=-5000, max_value=5000), min_size=2, max_size=50))
def test_each_sortable_id_is_greater_than_the_one_before(steps: list[int]) -> None:
    """However the clock moves, forward, not at all or back, the order of the texts is that of their making."""

    class JumpingClock(SystemClock):
        milliseconds_now = 1_700_000_000_000

        def time_ns(self) -> int:
            return self.milliseconds_now * 1_000_000

    clock = JumpingClock()
    ids = SortableIds(clock)
    made = []
    for step in steps:
        clock.milliseconds_now += step
        made.append(ids.next())
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert all(len(text) == 26 and set(text) <= set(ALPHABET) for text in made)


def test_ids_of_two_makers_sort_by_time() -> None:
    """An id of a later millisecond is greater, whoever made it."""
    early = SortableIds(
        ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), lambda bits: 2**bits - 1
    ).next()
    late = SortableIds(
        ManualClock(datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)), lambda _: 0
    ).next()
    assert early < late


def test_a_millisecond_that_overflows_carries_on_into_the_next() -> None:
    ids = SortableIds(ManualClock(), lambda bits: 2**bits - 1)
    first, second = ids.next(), ids.next()
    assert first < second
    assert second[:10] > first[:10]


def test_threads_never_get_the_same_id() -> None:
    ids = SortableIds(ManualClock())
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: ids.next(), range(2000)))
    assert len(set(made)) == 2000
