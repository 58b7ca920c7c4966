"""Entries expire after their TTL, and the cache stays within its bound."""

from hypothesis import given
from hypothesis import strategies as st

from tally.kit.clock import ManualClock
from tally.kit.ttl_cache import TTLCache


async def test_an_entry_is_available_until_it_expires(clock: ManualClock) -> None:
    cache: TTLCache[str, int] = TTLCache(clock, ttl_seconds=4, max_entries=10)
    assert cache.get("a") is None
    cache.put("a", 1)
    await clock.advance(3.9)
    assert cache.get("a") == 1
    await clock.advance(0.1)
    assert cache.get("a") is None


async def test_reading_does_not_extend_the_ttl_and_writing_does(
    clock: ManualClock,
) -> None:
    cache: TTLCache[str, int] = TTLCache(clock, ttl_seconds=4, max_entries=10)
    cache.put("read", 1)
    cache.put("written", 1)
    await clock.advance(3)
    assert cache.get("read") == 1
    cache.put("written", 2)
    await clock.advance(3)
    assert cache.get("read") is None
    assert cache.get("written") == 2


def test_falsy_values_are_cached(clock: ManualClock) -> None:
    cache: TTLCache[str, str | bool] = TTLCache(clock, ttl_seconds=4, max_entries=10)
    cache.put("name", "")
    cache.put("flag", False)
    assert cache.get("name") == ""
    assert cache.get("flag") is False


def test_the_oldest_entry_is_evicted_when_the_cache_is_full(clock: ManualClock) -> None:
    cache: TTLCache[int, int] = TTLCache(clock, ttl_seconds=4, max_entries=3)
    for number in (1, 2, 3, 1, 4):
        cache.put(number, number)
    assert [number for number in range(5) if cache.get(number)] == [1, 3, 4]


def test_a_removed_entry_is_not_returned(clock: ManualClock) -> None:
    cache: TTLCache[str, int] = TTLCache(clock, ttl_seconds=4, max_entries=3)
    cache.put("a", 1)
    cache.remove("a")
    cache.remove("unknown")
    assert cache.get("a") is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9)), st.tuples(st.just("wait"), st.integers(1, 5))
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 6))
async def test_the_cache_contains_the_latest_unexpired_entries(
    steps: list[tuple[str, int]], max_entries: int
) -> None:
    """The model is a list of all writes."""
    clock = ManualClock()
    cache: TTLCache[int, int] = TTLCache(clock, ttl_seconds=6, max_entries=max_entries)
    history: list[tuple[int, float]] = []
    for action, number in steps:
        if action == "wait":
            await clock.advance(number)
            continue
        cache.put(number, number)
        history = [entry for entry in history if entry[0] != number] + [(number, clock.monotonic())]
        assert len(cache._entries) <= max_entries
        expected = {key for key, put_at in history[-max_entries:] if clock.monotonic() < put_at + 6}
        assert {key for key in range(10) if cache.get(key) == key} == expected
        assert cache.count() == len(expected)
