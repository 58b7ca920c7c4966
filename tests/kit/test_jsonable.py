"""Stored values are converted to JSON types."""

from decimal import Decimal
from typing import Any

import pytest

from tally.kit.jsonable import to_jsonable


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (Decimal("3.0"), 3),
        (Decimal("-0.5"), -0.5),
        (7, 7),
        (True, True),
        (None, None),
        ("text", "text"),
        ((Decimal(1), [Decimal("1.5")]), [1, [1.5]]),
        ({"a": {"b": Decimal("2.25")}}, {"a": {"b": 2.25}}),
        ({Decimal("2.5"), 1}, [1, 2.5]),
        (frozenset({"b", "a"}), ["a", "b"]),
    ],
)
def test_a_stored_value_is_converted_to_json_types(stored: Any, expected: Any) -> None:
    assert to_jsonable(stored) == expected


@pytest.mark.parametrize(
    ("number", "kind"), [(Decimal("3.0"), int), (Decimal("1E+2"), int), (Decimal("0.1"), float)]
)
def test_an_integral_number_becomes_an_int_and_any_other_a_float(
    number: Decimal, kind: type
) -> None:
    assert type(to_jsonable(number)) is kind


def test_bytes_are_unchanged_without_a_converter() -> None:
    stored = {"photo": bytearray(b"abc"), "all": {b"abcd"}}
    assert to_jsonable(stored) == {"photo": b"abc", "all": [b"abcd"]}
    assert to_jsonable(stored, binary=len) == {"photo": 3, "all": [4]}
