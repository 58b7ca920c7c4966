"""What was made of a short key is remembered, and never too much of it."""

from tally.kit.memo import MAX_ENTRIES, MAX_KEY_LENGTH, Memo


def test_a_value_is_made_once_for_a_short_key_and_each_time_for_a_long_one() -> None:
    made: list[str] = []

    def make(key: str) -> int:
        made.append(key)
        return len(key)

    lengths = Memo(make)
    short, long = "x" * MAX_KEY_LENGTH, "x" * (MAX_KEY_LENGTH + 1)
    assert [lengths[key] for key in (short, short, long, long)] == [
        MAX_KEY_LENGTH,
        MAX_KEY_LENGTH,
        MAX_KEY_LENGTH + 1,
        MAX_KEY_LENGTH + 1,
    ]
    assert made == [short, long, long]
    assert [*lengths] == [short]


def test_when_there_are_too_many_all_are_forgotten() -> None:
    doubled: Memo[int, int] = Memo(lambda number: 2 * number)
    assert [doubled[number] for number in range(MAX_ENTRIES + 1)] == [
        2 * number for number in range(MAX_ENTRIES + 1)
    ]
    assert [*doubled] == [MAX_ENTRIES]
