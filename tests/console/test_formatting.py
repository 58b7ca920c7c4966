"""Amounts are told as a person reads them."""

import pytest

from tally.console import formatting


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (4_200, "4.2 kB"),
        (123_456_789, "123 MB"),
        (9.9e15, "9900 TB"),
    ],
)
def test_a_size_has_the_unit_that_fits(count: float, told: str) -> None:
    assert formatting.format_size(count) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "just now"),
        (1.9, "just now"),
        (42, "42 s ago"),
        (240, "4 min ago"),
        (7_200, "2 h ago"),
        (259_200, "3 days ago"),
    ],
)
def test_what_was_is_so_long_ago(seconds: float, told: str) -> None:
    assert formatting.format_ago(seconds) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.0004, "0.4 ms"), (0.012, "12 ms"), (3.14, "3.1 s")]
)
def test_a_duration_has_two_figures_or_so(seconds: float, told: str) -> None:
    assert formatting.format_duration(seconds) == told


def test_a_rate_has_a_fraction_while_it_is_small() -> None:
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
