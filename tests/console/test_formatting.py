"""Sizes, ages, durations and rates are formatted for people."""

import pytest

from tally.console import formatting


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (4_200, "4.2 kB"),
        (123_456_789, "123 MB"),
        (9.9e15, "9900 TB"),
    ],
)
def test_a_size_has_a_fitting_unit(count: float, expected: str) -> None:
    assert formatting.format_size(count) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "just now"),
        (1.9, "just now"),
        (42, "42 s ago"),
        (240, "4 min ago"),
        (7_200, "2 h ago"),
        (259_200, "3 days ago"),
    ],
)
def test_an_age_has_a_fitting_unit(seconds: float, expected: str) -> None:
    assert formatting.format_ago(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0004, "0.4 ms"), (0.012, "12 ms"), (3.14, "3.1 s")]
)
def test_a_duration_has_about_two_digits(seconds: float, expected: str) -> None:
    assert formatting.format_duration(seconds) == expected


def test_a_small_rate_has_a_fraction() -> None:
    assert [formatting.format_rate(value) for value in (0, 8.14, 1_204.4)] == [
        "0.0",
        "8.1",
        "1,204",
    ]
    assert [formatting.pluralize(count, "match", "matches") for count in (0, 1, 2)] == [
        "matches",
        "match",
        "matches",
    ]
