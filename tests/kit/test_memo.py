"""Values of short keys are memoized, and the number of entries is bounded."""

from tally.kit.memo import MAX_ENTRIES, MAX_KEY_LENGTH, Memo


def test_only_values_of_short_keys_are_memoized() -> None:
    computed: list[str] = []

    def compute(key: str) -> int:
        computed.append(key)
        return len(key)

    lengths = Memo(compute)
    short, long = "x" * MAX_KEY_LENGTH, "x" * (MAX_KEY_LENGTH + 1)
    assert [lengths[key] for key in (short, short, long, long)] == [
        MAX_KEY_LENGTH,
        MAX_KEY_LENGTH,
        MAX_KEY_LENGTH + 1,
        MAX_KEY_LENGTH + 1,
    ]
    assert computed == [short, long, long]
    assert [*lengths] == [short]


def test_a_full_memo_is_cleared() -> None:
    doubled: Memo[int, int] = Memo(lambda number: 2 * number)
    assert [doubled[number] for number in range(MAX_ENTRIES + 1)] == [
        2 * number for number in range(MAX_ENTRIES + 1)
    ]
    assert [*doubled] == [MAX_ENTRIES]
