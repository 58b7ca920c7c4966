"""What is kept for a moment is gone after it, and never more is kept than the bound."""

from hypothesis import given
from hypothesis import strategies as st

from tally.kit.clock import ManualClock
from tally.kit.ttl_cache import TTLCache


async def test_a_value_is_there_until_its_time_is_over(clock: ManualClock) -> None:
    recent: TTLCache[str, int] = TTLCache(clock, ttl_seconds=4, max_entries=10)
    assert recent.get("a") is None
    recent.put("a", 1)
    await clock.advance(3.9)
    assert recent.get("a") == 1
    await clock.advance(0.1)
    assert recent.get("a") is None


async def test_to_look_at_a_value_does_not_keep_it_longer_and_to_put_it_does(
    clock: ManualClock,
) -> None:
    recent: TTLCache[str, int] = TTLCache(clock, ttl_seconds=4, max_entries=10)
    recent.put("looked at", 1)
    recent.put("put again", 1)
    await clock.advance(3)
    assert recent.get("looked at") == 1
    recent.put("put again", 2)
    await clock.advance(3)
    assert recent.get("looked at") is None
    assert recent.get("put again") == 2


def test_what_is_false_is_a_value_too(clock: ManualClock) -> None:
    recent: TTLCache[str, str | bool] = TTLCache(clock, ttl_seconds=4, max_entries=10)
    recent.put("name", "")
    recent.put("flag", False)
    assert recent.get("name") == ""
    assert recent.get("flag") is False


def test_the_oldest_goes_when_there_are_too_many(clock: ManualClock) -> None:
    recent: TTLCache[int, int] = TTLCache(clock, ttl_seconds=4, max_entries=3)
    for number in (1, 2, 3, 1, 4):
        recent.put(number, number)
    assert [number for number in range(5) if recent.get(number)] == [1, 3, 4]


def test_what_is_forgotten_is_gone(clock: ManualClock) -> None:
    recent: TTLCache[str, int] = TTLCache(clock, ttl_seconds=4, max_entries=3)
    recent.put("a", 1)
    recent.remove("a")
    recent.remove("never there")
    assert recent.get("a") is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9)), st.tuples(st.just("wait"), st.integers(1, 5))
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 6))
async def test_it_holds_the_latest_of_what_was_put_lately(
    steps: list[tuple[str, int]], most: int
) -> None:
    """Against a list of all that was ever put."""
    clock = ManualClock()
    recent: TTLCache[int, int] = TTLCache(clock, ttl_seconds=6, max_entries=most)
    history: list[tuple[int, float]] = []
    for action, number in steps:
        if action == "wait":
            await clock.advance(number)
            continue
        recent.put(number, number)
        history = [entry for entry in history if entry[0] != number] + [(number, clock.monotonic())]
        assert len(recent._entries) <= most
        expected = {key for key, put_at in history[-most:] if clock.monotonic() < put_at + 6}
        assert {key for key in range(10) if recent.get(key) == key} == expected
        assert recent.count() == len(expected)
