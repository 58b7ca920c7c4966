"""Expression trees are encoded to DynamoDB's strings, and values round-trip."""

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tally.store.encode import Placeholders, from_wire, item_from_wire, item_to_wire, to_wire
from tally.store.errors import InvalidNumber, InvalidValue
from tally.store.evaluate import equal
from tally.store.expressions import (
    Action,
    Condition,
    F,
    Path,
    exists,
    list_append,
    make_path,
    not_exists,
)
from tally.store.values import type_of
from tests.store.strategies import conditions, items, paths, updates, values

A, B, C = F("a"), F("b"), F("c")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (A == 1, "#n0 = :v0"),
        (A != "x", "#n0 <> :v0"),
        (A < B, "#n0 < #n1"),
        (A <= 1, "#n0 <= :v0"),
        (A > 1, "#n0 > :v0"),
        (A >= 1, "#n0 >= :v0"),
        (A.between(1, B), "#n0 BETWEEN :v0 AND #n1"),
        (A.is_in(1, "1", b"1"), "#n0 IN (:v0, :v1, :v2)"),
        (A.exists(), "attribute_exists(#n0)"),
        (A.not_exists(), "attribute_not_exists(#n0)"),
        (A.type_is("SS"), "attribute_type(#n0, :v0)"),
        (A.begins_with("x"), "begins_with(#n0, :v0)"),
        (A.contains(B), "contains(#n0, #n1)"),
        (A.size() > 3, "size(#n0) > :v0"),
        (F("a", "b", 0, "a", 12) == 1, "#n0.#n1[0].#n0[12] = :v0"),
        (F("a.b") == 1, "#n0 = :v0"),
    ],
    ids=str,
)
def test_each_condition_is_encoded(condition: Condition, expected: str) -> None:
    assert Placeholders().condition(condition) == expected


X, Y, Z = exists("x"), exists("y"), exists("z")
HAS_X, HAS_Y, HAS_Z = "attribute_exists(#n0)", "attribute_exists(#n1)", "attribute_exists(#n2)"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (X & Y & Z, f"{HAS_X} AND {HAS_Y} AND {HAS_Z}"),
        (X & (Y & Z), f"{HAS_X} AND {HAS_Y} AND {HAS_Z}"),
        (X | Y | Z, f"{HAS_X} OR {HAS_Y} OR {HAS_Z}"),
        (X & Y | Z, f"{HAS_X} AND {HAS_Y} OR {HAS_Z}"),
        (X | Y & Z, f"{HAS_X} OR {HAS_Y} AND {HAS_Z}"),
        ((X | Y) & Z, f"({HAS_X} OR {HAS_Y}) AND {HAS_Z}"),
        (X & (Y | Z), f"{HAS_X} AND ({HAS_Y} OR {HAS_Z})"),
        (~X & Y, f"NOT ({HAS_X}) AND {HAS_Y}"),
        (~(X & Y) | Z, f"NOT ({HAS_X} AND {HAS_Y}) OR {HAS_Z}"),
        (~(X | Y), f"NOT ({HAS_X} OR {HAS_Y})"),
        (~~X, f"NOT (NOT ({HAS_X}))"),
    ],
    ids=str,
)
def test_only_necessary_parentheses_are_written(condition: Condition, expected: str) -> None:
    assert Placeholders().condition(condition) == expected


def test_a_very_deep_tree_is_written_without_recursion() -> None:
    condition: Condition = X
    for _ in range(5000):
        condition = ~(condition & Y)

    text = Placeholders().condition(condition)

    assert text.count("NOT") == 5000
    assert text.endswith(f"{HAS_X} AND {HAS_Y})" + f" AND {HAS_Y})" * 4999)


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ((A.set(1),), "SET #n0 = :v0"),
        ((A.set(B),), "SET #n0 = #n1"),
        ((A.set(A + 1),), "SET #n0 = #n0 + :v0"),
        ((A.set(B - C),), "SET #n0 = #n1 - #n2"),
        ((A.set(A.if_not_exists(0) + 1),), "SET #n0 = if_not_exists(#n0, :v0) + :v1"),
        ((A.set(A.list_append([1])),), "SET #n0 = list_append(#n0, :v0)"),
        (
            (A.set(list_append([1], A.if_not_exists([]))),),
            "SET #n0 = list_append(:v0, if_not_exists(#n0, :v1))",
        ),
        ((A.remove(), F("b", 0).remove()), "REMOVE #n0, #n1[0]"),
        ((A.add(1), B.add({"x"})), "ADD #n0 :v0, #n1 :v1"),
        ((A.discard({"x"}),), "DELETE #n0 :v0"),
        (
            (A.set(1), B.remove(), C.set(2), F("d").add(1), F("e").discard({1})),
            "SET #n0 = :v0, #n2 = :v1 REMOVE #n1 ADD #n3 :v0 DELETE #n4 :v2",
        ),
    ],
    ids=str,
)
def test_each_update_action_is_encoded_and_each_clause_appears_once(
    actions: tuple[Action, ...], expected: str
) -> None:
    assert Placeholders().update(actions) == expected


def test_all_expressions_of_a_request_share_their_placeholders() -> None:
    placeholders = Placeholders()

    update = placeholders.update((F("holder").set("me"), F("until").set(99)))
    condition = placeholders.condition(
        not_exists("lockKey") | (F("until") < 99) | (F("holder") == "me")
    )
    projection = placeholders.projection((make_path("until"), make_path("map", "until")))

    assert update == "SET #n0 = :v0, #n1 = :v1"
    assert condition == "attribute_not_exists(#n2) OR #n1 < :v1 OR #n0 = :v0"
    assert projection == "#n1, #n3.#n1"
    assert placeholders.fields() == {
        "ExpressionAttributeNames": {
            "#n0": "holder",
            "#n1": "until",
            "#n2": "lockKey",
            "#n3": "map",
        },
        "ExpressionAttributeValues": {":v0": {"S": "me"}, ":v1": {"N": "99"}},
    }


def test_values_that_are_equal_in_python_only_stay_distinct() -> None:
    placeholders = Placeholders()

    text = placeholders.condition(A.is_in(1, True, "1", b"1", None, Decimal("1.0"), 1))

    assert text == "#n0 IN (:v0, :v1, :v2, :v3, :v4, :v0, :v0)"
    assert placeholders.fields()["ExpressionAttributeValues"] == {
        ":v0": {"N": "1"},
        ":v1": {"BOOL": True},
        ":v2": {"S": "1"},
        ":v3": {"B": b"1"},
        ":v4": {"NULL": True},
    }


def test_a_request_without_names_or_values_has_no_field_for_them() -> None:
    placeholders = Placeholders()
    assert placeholders.fields() == {}

    placeholders.condition(A.exists())
    assert placeholders.fields() == {"ExpressionAttributeNames": {"#n0": "a"}}


PLACEHOLDER = re.compile(r"[#:][nv]\d+")
# What is left of an expression when its placeholders are taken out.
SKELETON = re.compile(
    r"(?:attribute_exists|attribute_not_exists|attribute_type|begins_with|contains|size|if_not_exists|list_append"
    r"|SET|REMOVE|ADD|DELETE|AND|OR|NOT|IN|BETWEEN|\[\d+\]|[-+=<>(),. ])*"
)


@pytest.mark.soak
@given(
    st.lists(
        st.one_of(conditions(), updates(), st.lists(paths(), min_size=1).map(tuple)),
        min_size=1,
        max_size=4,
    )
)
def test_placeholders_never_collide_and_the_text_contains_no_input(
    expressions: list[Condition | tuple[Action, ...] | tuple[Path, ...]],
) -> None:
    placeholders = Placeholders()
    texts = [_encode(placeholders, expression) for expression in expressions]
    fields = placeholders.fields()
    names: dict[str, str] = fields.get("ExpressionAttributeNames", {})
    values_: dict[str, Any] = fields.get("ExpressionAttributeValues", {})

    used = {short for text in texts for short in PLACEHOLDER.findall(text)}
    assert used == {*names, *values_}
    assert len(set(names.values())) == len(names)
    assert all(SKELETON.fullmatch(PLACEHOLDER.sub("", text)) for text in texts)


def _encode(placeholders: Placeholders, expression: Any) -> str:
    if isinstance(expression, Condition):
        return placeholders.condition(expression)
    if isinstance(expression[0], Path):
        return placeholders.projection(expression)
    return placeholders.update(expression)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ("text", {"S": "text"}),
        ("", {"S": ""}),
        (7, {"N": "7"}),
        (Decimal("-1.50"), {"N": "-1.5"}),
        (Decimal("1E+3"), {"N": "1000"}),
        (Decimal("7.00"), {"N": "7"}),
        (Decimal("-0.0"), {"N": "0"}),
        (Decimal("1.23E-5"), {"N": "0.0000123"}),
        (Decimal("1." + "0" * 50), {"N": "1"}),
        (b"\x00", {"B": b"\x00"}),
        (True, {"BOOL": True}),
        (None, {"NULL": True}),
        ([1, "a", []], {"L": [{"N": "1"}, {"S": "a"}, {"L": []}]}),
        ((1,), {"L": [{"N": "1"}]}),
        ({"k": {"n": 1}}, {"M": {"k": {"M": {"n": {"N": "1"}}}}}),
        ({"x"}, {"SS": ["x"]}),
        (frozenset({5}), {"NS": ["5"]}),
        ({Decimal("5.0")}, {"NS": ["5"]}),
        ({10, Decimal("2.5"), -1, 9}, {"NS": ["-1", "2.5", "9", "10"]}),
        ({"b", "é", "a", "B"}, {"SS": ["B", "a", "b", "é"]}),
        ({b"\xff", b"a", b"\x00"}, {"BS": [b"\x00", b"a", b"\xff"]}),
        ({b"x"}, {"BS": [b"x"]}),
    ],
    ids=lambda each: str(sorted(each, key=repr)) if isinstance(each, set) else repr(each),
)
def test_each_type_is_encoded(value: Any, wire: dict[str, Any]) -> None:
    assert to_wire(value) == wire


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-0", 0),
        ("1E+3", 1000),
        ("1.000", 1),
        ("1.5", Decimal("1.5")),
        ("-1E-130", Decimal("-1E-130")),
        ("99999999999999999999999999999999999999", 99999999999999999999999999999999999999),
        (
            "9999999999999999999999999999999999999.9",
            Decimal("9999999999999999999999999999999999999.9"),
        ),
        ("1" + "0" * 125, 10**125),
    ],
)
def test_an_integer_decodes_to_int_and_any_other_number_to_an_exact_decimal(
    text: str, number: int | Decimal
) -> None:
    found = from_wire({"N": text})

    assert type(found) is type(number)
    assert found == number


@pytest.mark.soak
@given(values())
@example(Decimal("9.9999999999999999999999999999999999999E+125"))
@example(frozenset({Decimal("1E-130"), 0}))
def test_a_value_round_trips_unchanged(value: Any) -> None:
    back = from_wire(to_wire(value))

    assert type_of(back) == type_of(value)
    assert equal(back, value)


@pytest.mark.soak
@given(items())
def test_an_item_round_trips_unchanged(item: dict[str, Any]) -> None:
    assert equal(item_from_wire(item_to_wire(item)), item)


def test_a_number_is_rejected_rather_than_rounded() -> None:
    with pytest.raises(InvalidNumber, match="38"):
        to_wire(Decimal("1" * 39))


@pytest.mark.parametrize(
    "value",
    [1.5, object(), {1, "a"}, set(), [1.5], {"k": 1.5}],
    ids=lambda value: type(value).__name__,
)
def test_an_invalid_value_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidValue):
        to_wire(value)
