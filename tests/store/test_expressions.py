"""Conditions and updates are immutable data, built in Python."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tally.store import expressions as e
from tally.store.errors import InvalidExpression
from tally.store.expressions import F, Literal, Path, exists, list_append, make_path, not_exists

A, B = Path(("a",)), Path(("b",))


@pytest.mark.parametrize(
    ("built", "tree"),
    [
        (F("a") == 1, e.Compare("=", A, Literal(1))),
        (F("a") != F("b"), e.Compare("<>", A, B)),
        (F("a") < 1, e.Compare("<", A, Literal(1))),
        (F("a") <= 1, e.Compare("<=", A, Literal(1))),
        (F("a") > 1, e.Compare(">", A, Literal(1))),
        (F("a") >= 1, e.Compare(">=", A, Literal(1))),
        (F("a").between(1, F("b")), e.Between(A, Literal(1), B)),
        (F("a").is_in(1, "x", F("b")), e.In(A, (Literal(1), Literal("x"), B))),
        (F("a").exists(), e.Exists(A)),
        (exists("a"), e.Exists(A)),
        (F("a").not_exists(), e.Absent(A)),
        (not_exists("a"), e.Absent(A)),
        (F("a").type_is("NS"), e.TypeIs(A, "NS")),
        (F("a").begins_with("x"), e.BeginsWith(A, Literal("x"))),
        (F("a").contains(F("b")), e.Contains(A, B)),
        (F("a").size() > 3, e.Compare(">", e.Size(A), Literal(3))),
        (F("a").size().between(1, 3), e.Between(e.Size(A), Literal(1), Literal(3))),
        (F("a") == F("b").size(), e.Compare("=", A, e.Size(B))),
        (~not_exists("a"), e.Not(e.Absent(A))),
        (not_exists("a") & exists("b"), e.And(e.Absent(A), e.Exists(B))),
        (not_exists("a") | exists("b"), e.Or(e.Absent(A), e.Exists(B))),
        (F("a").set(1), e.Set(A, Literal(1))),
        (F("a").set(F("b")), e.Set(A, B)),
        (F("a").set(F("a") + 1), e.Set(A, e.Sum("+", A, Literal(1)))),
        (F("a").set(F("a") - F("b")), e.Set(A, e.Sum("-", A, B))),
        (
            F("a").set(F("a").if_not_exists(0) + 1),
            e.Set(A, e.Sum("+", e.IfAbsent(A, Literal(0)), Literal(1))),
        ),
        (
            F("a").set(F("a").if_not_exists(9) - 1),
            e.Set(A, e.Sum("-", e.IfAbsent(A, Literal(9)), Literal(1))),
        ),
        (F("a").set(F("a").list_append([1])), e.Set(A, e.Joined(A, Literal([1])))),
        (F("a").set(list_append([1], F("b"))), e.Set(A, e.Joined(Literal([1]), B))),
        (F("a").remove(), e.Remove(A)),
        (F("a").add(1), e.Add(A, Literal(1))),
        (F("a").discard({1}), e.Discard(A, Literal({1}))),
    ],
)
def test_the_encoded_expression_parses_to_the_same_tree(built: Any, tree: Any) -> None:
    assert built == tree


def test_a_path_is_its_parts_and_a_dot_is_part_of_a_name() -> None:
    assert F("a", "b", 0).path == Path(("a", "b", 0))
    assert str(F("a", "b", 0, 1, "c").path) == "a.b[0][1].c"
    assert F("a.b").path == Path(("a.b",))
    assert F("a.b").path != F("a", "b").path


@pytest.mark.parametrize(
    "parts", [(), (0,), ("",), ("a", ""), ("a", -1), ("a", True), ("a", 1.5), (None,), ("a", b"b")]
)
def test_an_invalid_path_is_rejected(parts: Any) -> None:
    with pytest.raises(
        InvalidExpression, match=r"path must start with|neither a name nor a list position"
    ):
        make_path(*parts)


@pytest.mark.parametrize(
    "use",
    [
        lambda: bool(F("a") == 1),
        lambda: (F("a") == 1) and not_exists("b"),
        lambda: not not_exists("a"),
        lambda: 1 < F("a") < 3,
        lambda: bool(F("a")),
        lambda: not F("a").size(),
    ],
)
def test_a_condition_or_a_field_has_no_truth_value(use: Callable[[], Any]) -> None:
    with pytest.raises(InvalidExpression, match="no truth value"):
        use()


def test_none_is_the_neutral_element_of_conditions() -> None:
    condition = not_exists("a")
    assert (condition & None) == (None & condition) == condition
    assert (condition | None) == (None | condition) == condition


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (
            lambda: not_exists("a") & True,  # type: ignore[operator]
            "bool is not a condition",
        ),
        (
            lambda: not_exists("a") | "x",  # type: ignore[operator]
            "str is not a condition",
        ),
        (lambda: F("a") == not_exists("b"), "Absent cannot be compared"),
        (lambda: F("a") > (F("b") + 1), "Sum cannot be compared"),
        (lambda: F("a").set(not_exists("b")), "Absent cannot be stored"),
        (lambda: F("a").set(F("b").size()), "cannot be stored"),
        (lambda: F("a").set(F("b").remove()), "Remove cannot be stored"),
    ],
)
def test_a_misplaced_expression_is_rejected(use: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidExpression, match=words):
        use()


def test_expressions_are_frozen() -> None:
    condition = F("a") == 1
    with pytest.raises(AttributeError, match="immutable"):
        condition.operator = "<>"  # type: ignore[misc]
    assert structs.astuple(condition) == ("=", A, Literal(1))


def test_a_field_is_not_hashable_because_equality_builds_a_condition() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(F("a"))
