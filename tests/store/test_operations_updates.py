"""Updates on every engine: all actions, returned values and errors."""

from decimal import Decimal
from typing import Any

import pytest

from tally.store.api import Engine, Put, Returns, Update
from tally.store.errors import (
    ConditionFailed,
    InvalidExpression,
    InvalidKey,
    InvalidNumber,
    InvalidRequest,
    ItemTooLarge,
)
from tally.store.evaluate import equal
from tally.store.expressions import Action, F, Joined, Literal, Sum, exists, not_exists
from tests.store.expression_cases import IMPOSSIBLE, ITEM, UPDATES, after
from tests.store.tables import PLAIN, PLAYERS, STRINGS, fresh, stored

OLD: dict[str, Any] = {"a": 1, "b": "x", "map": {"k": "v", "n": 1, "l": [1, 2, 3]}}


async def put(engine: Engine, **attributes: Any) -> dict[str, Any]:
    """Put a new item with these attributes; return its key."""
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, **attributes}))
    return key


@pytest.mark.parametrize(
    ("actions", "changes"), [pytest.param(*case, id=name) for name, case in UPDATES.items()]
)
async def test_an_update_changes_the_named_paths(
    engine: Engine, actions: tuple[Action, ...], changes: dict[str, Any]
) -> None:
    key = await put(engine, **ITEM)
    updated = await engine.update(Update(PLAIN, key, actions, returns="ALL_NEW"))
    expected = {**key, **after(changes)}
    assert updated.item is not None
    assert equal(updated.item, expected)
    item = await stored(engine, PLAIN, key)
    assert item is not None
    assert equal(item, expected)


@pytest.mark.parametrize(
    "actions", [pytest.param(actions, id=name) for name, actions in IMPOSSIBLE.items()]
)
async def test_an_update_that_is_invalid_for_its_item_changes_nothing(
    engine: Engine, actions: tuple[Action, ...]
) -> None:
    key = await put(engine, **ITEM)
    with pytest.raises(InvalidRequest):
        await engine.update(Update(PLAIN, key, (F("touched").set(True), *actions)))
    item = await stored(engine, PLAIN, key)
    assert item is not None
    assert equal(item, {**key, **ITEM})


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ((F("id").set("y"),), "id is part of the key"),
        ((F("id").remove(),), "id is part of the key"),
        ((F("id", "k").set(1),), "id is part of the key"),
        ((F("a").set(1), F("a").set(2)), "overlap"),
        ((F("a").set(1), F("a").remove()), "overlap"),
        ((F("a").set({}), F("a", "k").set(2)), "overlap"),
        ((F("a", "k", 0).set(1), F("a", "k").add(1)), "overlap"),
        ((F("a", 0).set(1), F("a", "k").set(1)), "map and as a list"),
        ((F("a").add("x"),), "a number or a set, not S"),
        ((F("a").add([1]),), "a number or a set, not L"),
        ((F("a").discard(1),), "a set, not N"),
        ((F("a").set(F("a") + "x"),), "numbers, not S"),
        ((F("a").set(F("a").list_append("x")),), "lists, not S"),
        ((F("a").set(Sum("+", Sum("+", Literal(1), Literal(2)), Literal(3))),), "nested"),
        ((F("a").set(Joined(Literal([]), Joined(Literal([]), Literal([])))),), "nested"),
        ((F("a").set(F("b").if_not_exists(F("b"))),), "itself"),
        ((F("a").set(F("b").if_not_exists(F("c") + 1)),), "nested"),
        ((F("a").set(F("b").if_not_exists(F("c").list_append([]))),), "nested"),
    ],
)
async def test_an_invalid_update_is_rejected(
    engine: Engine, actions: tuple[Action, ...], words: str
) -> None:
    key = await put(engine, a=1)
    with pytest.raises(InvalidExpression, match=words):
        await engine.update(Update(PLAIN, key, actions))
    assert await stored(engine, PLAIN, key) == {**key, "a": 1}


async def test_an_update_creates_a_missing_item(engine: Engine) -> None:
    key = {"id": fresh()}
    updated = await engine.update(
        Update(PLAIN, key, (F("n").add(1), F("l").set([])), returns="ALL_NEW")
    )
    assert updated.item == {**key, "n": 1, "l": []}


@pytest.mark.parametrize("action", [F("gone").remove(), F("gone").discard({"x"})])
async def test_an_update_that_only_removes_creates_no_item(engine: Engine, action: Action) -> None:
    key = {"id": fresh()}
    assert (await engine.update(Update(PLAIN, key, (action,), returns="ALL_NEW"))).item is None
    assert await stored(engine, PLAIN, key) is None


async def test_an_update_without_actions_creates_an_item_from_its_key(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.update(Update(PLAIN, key, ()))
    assert await stored(engine, PLAIN, key) == key
    await engine.put(Put(PLAIN, {**key, "a": 1}))
    await engine.update(Update(PLAIN, key, ()))
    assert await stored(engine, PLAIN, key) == {**key, "a": 1}


async def test_an_update_with_a_failed_condition_creates_no_item(engine: Engine) -> None:
    key = {"id": fresh()}
    with pytest.raises(ConditionFailed):
        await engine.update(Update(PLAIN, key, (F("n").set(1),), condition=exists("id")))
    assert await stored(engine, PLAIN, key) is None


async def test_a_right_side_may_read_the_key(engine: Engine) -> None:
    key = await put(engine, a=1)
    updated = await engine.update(
        Update(PLAIN, key, (F("copy").set(F("id")),), returns="UPDATED_NEW")
    )
    assert updated.item == {"copy": key["id"]}


async def test_a_right_side_may_read_the_key_of_a_new_item(engine: Engine) -> None:
    key = {"id": fresh()}
    updated = await engine.update(Update(PLAIN, key, (F("copy").set(F("id")),), returns="ALL_NEW"))
    assert updated.item == {**key, "copy": key["id"]}


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ("NONE", None),
        ("ALL_OLD", OLD),
        ("ALL_NEW", {**OLD, "a": 2, "c": 3}),
        ("UPDATED_OLD", {"a": 1}),
        ("UPDATED_NEW", {"a": 2, "c": 3}),
    ],
)
async def test_an_update_returns_what_is_requested(
    engine: Engine, returns: Returns, expected: Any
) -> None:
    key = await put(engine, **OLD)
    updated = await engine.update(
        Update(PLAIN, key, (F("a").set(2), F("c").set(3), F("gone").remove()), returns=returns)
    )
    assert updated.item == (
        expected if expected is None or returns.startswith("UPDATED") else {**key, **expected}
    )


@pytest.mark.parametrize(
    ("returns", "expected"),
    [("ALL_OLD", None), ("UPDATED_OLD", None), ("UPDATED_NEW", {"a": 1}), ("ALL_NEW", {"a": 1})],
)
async def test_an_update_of_a_missing_item_returns_no_old_item(
    engine: Engine, returns: Returns, expected: Any
) -> None:
    key = {"id": fresh()}
    updated = await engine.update(Update(PLAIN, key, (F("a").set(1),), returns=returns))
    assert updated.item == ({**key, "a": 1} if returns == "ALL_NEW" else expected)


@pytest.mark.parametrize(
    ("actions", "old", "new"),
    [
        pytest.param(
            (F("map", "k").set("w"),), {"map": {"k": "v"}}, {"map": {"k": "w"}}, id="in a map"
        ),
        pytest.param(
            (F("map", "l", 1).set(7),), {"map": {"l": [2]}}, {"map": {"l": [7]}}, id="in a list"
        ),
        pytest.param(
            (F("map", "l", 1).set(7), F("map", "k").set("w")),
            {"map": {"k": "v", "l": [2]}},
            {"map": {"k": "w", "l": [7]}},
            id="in both",
        ),
        pytest.param((F("map", "fresh").set(7),), None, {"map": {"fresh": 7}}, id="a new name"),
        pytest.param((F("map", "k").remove(),), {"map": {"k": "v"}}, None, id="removed from a map"),
        pytest.param(
            (F("map", "l", 0).remove(), F("map", "l", 5).remove()),
            {"map": {"l": [1]}},
            {"map": {"l": [2]}},
            id="removed from a list",
        ),
    ],
)
async def test_an_update_returns_only_the_changed_parts(
    engine: Engine, actions: tuple[Action, ...], old: Any, new: Any
) -> None:
    """A removed position shows the element that moved there, as in DynamoDB."""
    key = await put(engine, **OLD)
    assert (await engine.update(Update(PLAIN, key, actions, returns="UPDATED_OLD"))).item == old
    key = await put(engine, **OLD)
    assert (await engine.update(Update(PLAIN, key, actions, returns="UPDATED_NEW"))).item == new


async def test_elements_appended_past_the_end_are_not_among_the_updated_parts(
    engine: Engine,
) -> None:
    """They are not at the named position, as in DynamoDB."""
    key = await put(engine, **OLD)
    updated = await engine.update(
        Update(PLAIN, key, (F("map", "l", 9).set(7),), returns="UPDATED_NEW")
    )
    assert updated.item is None


async def test_removing_an_attribute_returns_it_as_old_and_nothing_as_new(engine: Engine) -> None:
    key = await put(engine, **OLD)
    assert (
        await engine.update(Update(PLAIN, key, (F("a").remove(),), returns="UPDATED_OLD"))
    ).item == {"a": 1}
    assert (
        await engine.update(Update(PLAIN, key, (F("b").remove(),), returns="UPDATED_NEW"))
    ).item is None


async def test_an_update_above_the_size_limit_is_rejected(engine: Engine) -> None:
    key = {"id": fresh()}
    steps = tuple(F(f"n{number}").set(number) for number in range(400))
    with pytest.raises(InvalidExpression, match="at most 4096 bytes"):
        await engine.update(Update(PLAIN, key, steps))
    await engine.update(Update(PLAIN, key, steps[:200]))
    item = await stored(engine, PLAIN, key)
    assert item is not None
    assert len(item) == 201


async def test_concurrent_increments_are_exact(engine: Engine) -> None:
    key = {"id": fresh()}
    for _ in range(5):
        await engine.update(Update(PLAIN, key, (F("n").add(Decimal("0.1")),)))
    assert await stored(engine, PLAIN, key) == {**key, "n": Decimal("0.5")}


async def test_a_sum_out_of_range_is_rejected(engine: Engine) -> None:
    most = Decimal("9.9E+125")
    key = await put(engine, n=most)
    with pytest.raises(InvalidNumber, match=r"magnitude|overflow"):
        await engine.update(Update(PLAIN, key, (F("n").set(F("n") + most),)))
    assert await stored(engine, PLAIN, key) == {**key, "n": most}


async def test_an_update_that_makes_an_item_too_large_is_rejected(engine: Engine) -> None:
    key = await put(engine, a="x" * 300_000)
    with pytest.raises(ItemTooLarge, match=r"bytes|size"):
        await engine.update(Update(PLAIN, key, (F("b").set("y" * 110_000),)))
    item = await stored(engine, PLAIN, key)
    assert item is not None
    assert "b" not in item


@pytest.mark.parametrize(
    ("action", "words"),
    [
        pytest.param(F("team").set(5), "team", id="a number for a string"),
        pytest.param(F("points").set("many"), "points", id="a string for a number"),
        pytest.param(F("team").set(""), "team", id="empty"),
        pytest.param(F("city").set("x" * 1025), "city", id="too long"),
        pytest.param(F("team").set(F("age")), "team", id="from another attribute"),
        pytest.param(F("points").set([1]), "points", id="a list for a number"),
    ],
)
async def test_an_update_that_makes_a_bad_index_key_is_rejected(
    engine: Engine, action: Action, words: str, request: pytest.FixtureRequest
) -> None:
    if "served-empty" in request.node.name:  # the service's message does not name the attribute
        words = "cannot contain an empty string value"
    key = {"club": fresh(), "name": "n"}
    await engine.put(Put(PLAYERS, {**key, "team": "t", "points": 1, "age": 30}))
    with pytest.raises(InvalidKey, match=words):
        await engine.update(Update(PLAYERS, key, (action,)))
    assert await stored(engine, PLAYERS, key) == {**key, "team": "t", "points": 1, "age": 30}


async def test_the_first_of_two_upserts_wins_under_a_condition(engine: Engine) -> None:
    key = {"id": fresh(), "at": "lock"}
    take = Update(
        STRINGS, key, (F("holder").set("me"),), condition=not_exists("id") | (F("until") < 5)
    )
    await engine.update(take)
    with pytest.raises(ConditionFailed):
        await engine.update(take)


async def test_nesting_deeper_than_32_levels_by_an_update_is_rejected(engine: Engine) -> None:
    deep: Any = "leaf"
    for _ in range(31):
        deep = [deep]
    key = await put(engine, deep=deep, map={})
    with pytest.raises(InvalidRequest, match=r"[Nn]est"):
        await engine.update(Update(PLAIN, key, (F("map", "deeper").set(F("deep")),)))


GIVEN: dict[str, Any] = {
    "decimal": Decimal("2.0"),
    "large": Decimal("1E+40"),
    "tuple": (1, Decimal("1.50"), {"x"}),
    "set": {Decimal("3.0"), 4},
    "map": {"n": Decimal("2.50"), "t": ()},
}


def types(value: Any) -> Any:
    """The types of a value and of all values in it."""
    if isinstance(value, dict):
        return {name: types(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types(element) for element in value]
    if isinstance(value, set | frozenset):
        return type(value), {(element, type(element)) for element in value}
    return type(value), str(value)


@pytest.mark.parametrize("returns", ["ALL_NEW", "UPDATED_NEW"])
async def test_an_update_returns_the_new_values_as_a_read_does(
    engine: Engine, returns: Returns
) -> None:
    key = await put(engine, count=1)
    actions = (*(F(name).set(value) for name, value in GIVEN.items()), F("count").add(1))
    updated = await engine.update(Update(PLAIN, key, actions, returns=returns))
    item = await stored(engine, PLAIN, key)
    assert updated.item is not None
    assert item is not None
    names = item if returns == "ALL_NEW" else (*GIVEN, "count")
    assert types(updated.item) == types({name: item[name] for name in names})
