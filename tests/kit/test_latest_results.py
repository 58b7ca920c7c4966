"""A result is reused while the argument stays equal, and the number of results is bounded."""

from tally.kit.latest_results import MAX_RESULTS, LatestResults


def make_results() -> tuple[LatestResults[str, list[int], int], list[list[int]]]:
    computed: list[list[int]] = []

    def compute(numbers: list[int]) -> int:
        computed.append(numbers)
        return sum(numbers)

    return LatestResults(compute), computed


def test_an_equal_argument_reuses_the_result() -> None:
    results, computed = make_results()
    assert results.get("a", [1, 2]) == results.get("a", [1, 2]) == 3
    assert computed == [[1, 2]]


def test_another_argument_or_key_computes_again() -> None:
    results, computed = make_results()
    assert [results.get("a", [1]), results.get("a", [2]), results.get("b", [2])] == [1, 2, 2]
    assert results.get("a", [1]) == 1
    assert computed == [[1], [2], [2], [1]]


def test_the_number_of_results_is_bounded() -> None:
    results, computed = make_results()
    for number in range(MAX_RESULTS + 1):
        results.get(str(number), [number])
    results.get(str(MAX_RESULTS), [MAX_RESULTS])
    assert len(computed) == MAX_RESULTS + 1
    results.get("0", [0])
    assert len(computed) == MAX_RESULTS + 2
