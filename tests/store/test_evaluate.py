"""Conditions, updates and projections are evaluated on items in memory."""

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from tally.store.errors import InvalidExpression, InvalidRequest
from tally.store.evaluate import (
    MISSING,
    apply,
    equal,
    matches,
    predicate,
    project,
    resolve_path,
)
from tally.store.expressions import Action, Condition, F, Path, Remove, Set, make_path
from tests.store.expression_cases import HOLDS, IMPOSSIBLE, ITEM, PROJECTIONS, UPDATES, after
from tests.store.strategies import conditions, items, paths, updates, values


@pytest.mark.parametrize(
    "condition", [pytest.param(condition, id=name) for name, condition in HOLDS.items()]
)
def test_a_condition_holds_and_its_negation_does_not(condition: Condition) -> None:
    assert matches(condition, ITEM) is True
    assert matches(~condition, ITEM) is False


@pytest.mark.parametrize(
    ("actions", "changes"), [pytest.param(*case, id=name) for name, case in UPDATES.items()]
)
def test_an_update_makes_a_new_item(actions: tuple[Action, ...], changes: dict[str, Any]) -> None:
    before = deepcopy(ITEM)
    assert equal(apply(actions, ITEM), after(changes))
    assert equal(before, ITEM)


@pytest.mark.parametrize(
    "actions", [pytest.param(actions, id=name) for name, actions in IMPOSSIBLE.items()]
)
def test_an_update_that_the_item_does_not_allow_is_rejected(actions: tuple[Action, ...]) -> None:
    with pytest.raises(InvalidRequest):
        apply(actions, ITEM)


@pytest.mark.parametrize(
    ("chosen", "expected"), [pytest.param(*case, id=name) for name, case in PROJECTIONS.items()]
)
def test_a_projection_returns_parts_at_their_paths(
    chosen: tuple[Path, ...], expected: dict[str, Any]
) -> None:
    assert equal(project(ITEM, chosen), expected)


def test_an_update_of_a_missing_item_creates_it_from_the_set_values() -> None:
    assert apply((F("a").set(1), F("b").add(2), F("c").remove(), F("d").discard({1})), {}) == {
        "a": 1,
        "b": 2,
    }


def test_find_distinguishes_null_from_missing() -> None:
    assert resolve_path(ITEM, make_path("nothing")) is None
    assert resolve_path(ITEM, make_path("gone")) is MISSING


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, Decimal("1.0"), True),
        (1, True, False),
        ([1], [True], False),
        ({"a": [0]}, {"a": [False]}, False),
        ((1, 2), [1, 2], True),
        ({1}, frozenset({Decimal(1)}), True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ("a", b"a", False),
        (None, MISSING, False),
        (MISSING, MISSING, False),
    ],
)
def test_values_are_equal_if_type_and_content_are(left: Any, right: Any, same: bool) -> None:
    assert equal(left, right) is same


@given(conditions(), items())
def test_every_condition_has_a_result_for_every_item(
    condition: Condition, item: dict[str, Any]
) -> None:
    assert matches(condition, item) is not matches(~condition, item)


@given(conditions(), conditions(), items())
def test_a_compiled_condition_has_the_same_result(
    left: Condition, right: Condition, item: dict[str, Any]
) -> None:
    assert predicate(left & right)(item) is matches(left & right, item)


@pytest.mark.parametrize(
    "value", [2, True, Decimal(2), Decimal("2.5"), "2", b"2", "\U0001f3cf", None]
)
@pytest.mark.parametrize("constant", [2, True, Decimal(2), "2", "\ufffd"])
def test_a_compiled_comparison_has_the_same_result_for_every_type(
    value: Any, constant: Any
) -> None:
    attribute = F("name")
    for condition in (
        attribute == constant,
        attribute != constant,
        attribute < constant,
        attribute <= constant,
        attribute > constant,
        attribute >= constant,
    ):
        for item in ({"name": value}, {}):
            assert predicate(condition)(item) is matches(condition, item)


@given(values())
def test_every_value_equals_itself(value: Any) -> None:
    assert equal(value, deepcopy(value))


@pytest.mark.parametrize("order", [1, -1])
def test_an_update_of_overlapping_paths_is_rejected(order: int) -> None:
    """In whichever order: neither of them could be said to win."""
    steps = (F("map", "k").set(1), F("map").set({}))[::order]
    with pytest.raises(InvalidExpression, match="overlap"):
        apply(steps, {"map": {}})


@given(updates(), items())
def test_an_update_never_changes_the_item_it_is_given(
    actions: tuple[Action, ...], item: dict[str, Any]
) -> None:
    before = deepcopy(item)
    try:
        first, second = apply(actions, item), apply(actions, item)
        assert equal(first, second)
    except InvalidRequest:
        pass  # an error is allowed; the item must be unchanged in both cases
    assert equal(item, before)


@given(paths(), values(), items())
def test_a_set_value_is_found_at_its_path(path: Path, value: Any, item: dict[str, Any]) -> None:
    if any(isinstance(part, int) for part in path.parts):
        return  # a position past the end appends elsewhere
    try:
        changed = apply((F(*path.parts).set(value),), item)
    except InvalidRequest:
        assert resolve_path(item, Path(path.parts[:-1])) is MISSING or not isinstance(
            resolve_path(item, Path(path.parts[:-1])), dict
        )
        return
    assert equal(resolve_path(changed, path), value)
    assert isinstance(F(*path.parts).set(value), Set)
    removed = apply((Remove(path),), changed)
    assert resolve_path(removed, path) is MISSING
