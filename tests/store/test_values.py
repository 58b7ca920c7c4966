"""The ten value types, their limits and their sizes."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from tally.store.errors import InvalidNumber, InvalidValue, ItemTooLarge
from tally.store.values import MAX_ITEM_BYTES, measure_item, measure_value, type_of
from tests.store.strategies import items, values


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "S"),
        ("", "S"),
        (1, "N"),
        (Decimal("1.5"), "N"),
        (b"bytes", "B"),
        (True, "BOOL"),
        (False, "BOOL"),
        (None, "NULL"),
        ([1, "a"], "L"),
        ((1, "a"), "L"),
        ({"a": 1}, "M"),
        ({"a", "b"}, "SS"),
        (frozenset({"a"}), "SS"),
        ({1, Decimal("2.5")}, "NS"),
        ({b"a"}, "BS"),
    ],
)
def test_each_python_type_maps_to_a_dynamodb_type(value: Any, kind: str) -> None:
    assert type_of(value) == kind


@pytest.mark.parametrize("value", [1.5, object(), bytearray(b"x"), 1j, range(3), {"a": 1}.keys()])
def test_a_python_type_without_a_counterpart_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidValue, match=type(value).__name__):
        measure_value(value, "field")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (set(), "must not be empty"),
        ({1, "a"}, "values of one type"),
        ({None}, "strings, numbers or binaries"),
    ],
)
def test_a_set_holds_elements_of_one_scalar_type_and_is_never_empty(value: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        measure_value(value, "field")


def test_a_float_is_rejected_because_it_would_not_be_exact() -> None:
    with pytest.raises(InvalidNumber, match=r"price.*not exact.*0\.1"):
        measure_value(0.1, "price")


@pytest.mark.parametrize(
    "number",
    [
        12345678901234567890123456789012345678,
        -12345678901234567890123456789012345678,
        Decimal("1.2345678901234567890123456789012345678"),
        Decimal("9.9999999999999999999999999999999999999E+125"),
        Decimal("1E-130"),
        Decimal("-1E-130"),
        Decimal("0E+500"),
        Decimal("-0"),
        10**125,
    ],
)
def test_a_number_of_38_digits_in_range_is_accepted(number: Any) -> None:
    assert 1 <= measure_value(number, "field") <= 21


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (123456789012345678901234567890123456789, "38 significant digits, not 39"),
        (Decimal("1.23456789012345678901234567890123456789"), "38 significant digits, not 39"),
        (10**126, "magnitude of a number must be at most"),
        (Decimal("-1E+126"), "magnitude of a number must be at most"),
        (Decimal("9E-131"), "magnitude of a number must be at least"),
        (Decimal("NaN"), "not a finite number"),
        (Decimal("sNaN"), "not a finite number"),
        (Decimal("Infinity"), "not a finite number"),
        (Decimal("-Infinity"), "not a finite number"),
    ],
)
def test_a_number_out_of_range_is_rejected(number: Any, words: str) -> None:
    with pytest.raises(InvalidNumber, match=words):
        measure_value(number, "field")


@pytest.mark.parametrize(
    ("number", "size"),
    [
        ("0", 1),
        ("-0", 1),
        ("1", 2),
        ("-1", 3),
        ("10", 2),
        ("12", 2),
        ("99", 2),
        ("100", 2),
        ("110", 3),
        ("101", 3),
        ("1234", 3),
        ("-123", 4),
        ("10001", 4),
        ("11000", 3),
        ("0.1", 2),
        ("0.01", 2),
        ("0.011", 3),
        ("0.0011", 2),
        ("1.5", 3),
        ("15.5", 3),
        ("120.5", 4),
        ("3.14159", 5),
        ("1E-130", 2),
        ("9.9E+125", 2),
        ("1.1E-10", 3),
        ("1.1E-11", 2),
        ("12345678901234567890123456789012345678", 20),
        ("-12345678901234567890123456789012345678", 21),
        ("-1.2345678901234567890123456789012345678", 21),
    ],
)
def test_a_number_costs_one_byte_and_one_for_each_two_digits_on_a_side_of_the_point(
    number: str, size: int
) -> None:
    """The sizes were measured at the boundary of a read unit."""
    assert measure_value(Decimal(number), "field") == size
    if Decimal(number) == int(Decimal(number)):
        assert measure_value(int(Decimal(number)), "field") == size


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("é", 2),
        ("😀", 4),
        (b"abc", 3),
        (True, 1),
        (None, 1),
        ([], 3),
        (["a"], 5),
        ({}, 3),
        ({"k": "a"}, 6),
        ({"a", "bb"}, 3),
        ({1, 22}, 4),
        ({b"a", b"bcd"}, 4),
        ([{"k": ["a"]}], 14),
    ],
)
def test_a_value_has_the_size_that_dynamodb_bills(value: Any, size: int) -> None:
    assert measure_value(value, "field") == size


def test_an_item_has_the_size_of_its_names_and_values() -> None:
    assert measure_item({"id": "abc", "größe": 7}) == 2 + 3 + 7 + 2


def test_an_item_of_exactly_400_kb_fits_and_one_byte_more_does_not() -> None:
    fitting = {"id": "k", "text": "x" * (MAX_ITEM_BYTES - 3 - 4)}
    assert measure_item(fitting) == MAX_ITEM_BYTES
    with pytest.raises(ItemTooLarge, match=f"{MAX_ITEM_BYTES + 1} bytes"):
        measure_item({**fitting, "text": fitting["text"] + "x"})


def nested(levels: int, kind: str) -> Any:
    """A value with this many levels; the innermost is a string."""
    value: Any = "leaf"
    for _ in range(levels - 1):
        value = [value] if kind == "list" else {"n": value}
    return value


@pytest.mark.parametrize("kind", ["list", "map"])
def test_a_value_has_at_most_32_levels_counting_the_innermost(kind: str) -> None:
    assert measure_value(nested(32, kind), "field") > 0
    with pytest.raises(InvalidValue, match=r"field.*nest"):
        measure_value(nested(33, kind), "field")


def test_an_invalid_unicode_string_is_rejected() -> None:
    with pytest.raises(InvalidValue, match=r"field.*Unicode"):
        measure_value("\ud800", "field")


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"": 1}, "1 to 65535 bytes, not 0"),
        ({"n" * 65_536: 1}, "not 65536"),
        ({1: 1}, "name must be a string, not int"),
        ({"a": {"": 1}}, "1 to 65535 bytes, not 0"),
        ({"a": {2: 1}}, "name must be a string, not int"),
        ([("a", 1)], "map of attributes, not list"),
    ],
)
def test_an_attribute_has_a_name_of_1_to_65535_bytes(item: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        measure_item(item)


@given(values())
def test_every_generated_value_is_of_one_of_the_ten_types_and_has_a_size(value: Any) -> None:
    assert type_of(value) in {"S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS"}
    assert measure_value(value, "field") >= 0


@given(items())
def test_the_size_of_an_item_is_the_sum_over_its_attributes(item: dict[str, Any]) -> None:
    assert measure_item(item) == sum(
        len(name.encode()) + measure_value(value, name) for name, value in item.items()
    )
