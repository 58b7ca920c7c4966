"""Conditions of writes on every engine.

All operators and functions, and the errors of failed ones.
"""

from typing import Any

import pytest

from tally.store.api import Delete, Engine, Put, Query, Update
from tally.store.errors import (
    ConditionFailed,
    InvalidExpression,
    InvalidNumber,
    InvalidRequest,
    InvalidValue,
)
from tally.store.expressions import Condition, F, Not, exists, not_exists
from tests.store.expression_cases import HOLDS, ITEM
from tests.store.tables import PLAIN, STRINGS, fresh, stored


@pytest.mark.parametrize(
    "condition", [pytest.param(condition, id=name) for name, condition in HOLDS.items()]
)
async def test_a_write_is_applied_only_if_its_condition_is_true(
    engine: Engine, condition: Condition
) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, **ITEM}))
    with pytest.raises(ConditionFailed):
        await engine.update(Update(PLAIN, key, (F("wrong").set(1),), condition=Not(condition)))
    updated = await engine.update(
        Update(PLAIN, key, (F("right").set(1),), condition=condition, returns="ALL_NEW")
    )
    assert updated.item is not None
    assert "right" in updated.item
    assert "wrong" not in updated.item


@pytest.mark.parametrize(
    "condition", [pytest.param(condition, id=name) for name, condition in HOLDS.items()]
)
async def test_a_filter_returns_the_items_that_match(engine: Engine, condition: Condition) -> None:
    key = {"id": fresh(), "at": "x"}
    await engine.put(Put(STRINGS, {**key, **ITEM}))
    where = F("id") == key["id"]
    assert len((await engine.query(Query(STRINGS, where, filter=condition))).items) == 1
    page = await engine.query(Query(STRINGS, where, filter=Not(condition)))
    assert (page.items, page.scanned) == ([], 1)


@pytest.mark.parametrize(
    "condition", [not_exists("id"), not_exists("a") & not_exists("b"), F("a") != 1, ~exists("id")]
)
async def test_a_condition_on_a_missing_item_sees_an_empty_item(
    engine: Engine, condition: Condition
) -> None:
    key = {"id": fresh()}
    with pytest.raises(ConditionFailed):
        await engine.put(Put(PLAIN, key, condition=Not(condition)))
    await engine.put(Put(PLAIN, key, condition=condition))
    assert await stored(engine, PLAIN, key) == key


async def test_a_failed_condition_of_a_put_returns_the_existing_item(
    engine: Engine,
) -> None:
    item = {"id": fresh(), "version": 3, "map": {"k": {"x"}}}
    await engine.put(Put(PLAIN, item))
    with pytest.raises(ConditionFailed, match="condition") as refusal:
        await engine.put(Put(PLAIN, {**item, "version": 4}, condition=F("version") == 2))
    assert refusal.value.item == item


async def test_a_failed_condition_of_an_update_returns_the_existing_item(
    engine: Engine,
) -> None:
    item = {"id": fresh(), "version": 3}
    await engine.put(Put(PLAIN, item))
    with pytest.raises(ConditionFailed) as refusal:
        await engine.update(
            Update(PLAIN, {"id": item["id"]}, (F("version").add(1),), condition=F("version") == 2)
        )
    assert refusal.value.item == item


async def test_a_failed_condition_of_a_delete_returns_the_existing_item(
    engine: Engine,
) -> None:
    item = {"id": fresh(), "version": 3}
    await engine.put(Put(PLAIN, item))
    with pytest.raises(ConditionFailed) as refusal:
        await engine.delete(Delete(PLAIN, {"id": item["id"]}, condition=F("version") == 2))
    assert refusal.value.item == item


async def test_a_failed_condition_on_a_missing_item_returns_no_item(engine: Engine) -> None:
    with pytest.raises(ConditionFailed) as refusal:
        await engine.put(Put(PLAIN, {"id": fresh()}, condition=exists("id")))
    assert refusal.value.item is None


async def test_a_condition_may_use_the_key(engine: Engine) -> None:
    key = {"id": fresh(), "at": "b"}
    await engine.put(Put(STRINGS, key))
    same = (F("id") == key["id"]) & (F("at") > "a") & F("at").begins_with("b")
    assert (await engine.put(Put(STRINGS, {**key, "n": 1}, condition=same))).item is None
    with pytest.raises(ConditionFailed):
        await engine.put(Put(STRINGS, key, condition=F("at") < "b"))


def chain(tests: int) -> Condition:
    """A conjunction of this many tests that are true for an empty item."""
    condition: Condition = not_exists("f0")
    for number in range(1, tests):
        condition = condition & not_exists(f"f{number % 7}")
    return condition


async def test_a_long_condition_is_accepted(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, key, condition=chain(100)))
    assert await stored(engine, PLAIN, key) == key


async def test_a_condition_above_the_size_limit_is_rejected(engine: Engine) -> None:
    key = {"id": fresh()}
    with pytest.raises(InvalidExpression, match="at most 4096 bytes"):
        await engine.put(Put(PLAIN, key, condition=chain(140)))
    assert await stored(engine, PLAIN, key) is None


SENSELESS: dict[str, tuple[Any, type[InvalidRequest], str]] = {
    "too many operators": (chain(301), InvalidExpression, "300"),
    "ordered against a truth value": (F("a") < True, InvalidExpression, "not BOOL"),
    "ordered against a list": (F("a") >= [1], InvalidExpression, "not L"),
    "ordered against a set": (F("a") > {1}, InvalidExpression, "not NS"),
    "ordered against null": (F("a") <= None, InvalidExpression, "not NULL"),
    "between truth values": (F("a").between(False, True), InvalidExpression, "not BOOL"),
    "between two types": (F("a").between(1, "z"), InvalidExpression, "one type"),
    "between the wrong way round": (F("a").between(2, 1), InvalidExpression, "lower bound first"),
    "between strings the wrong way round": (
        F("a").between("b", "a"),
        InvalidExpression,
        "lower bound first",
    ),
    "begins with a number": (F("a").begins_with(1), InvalidExpression, "not N"),
    "begins with a list": (F("a").begins_with(["x"]), InvalidExpression, "not L"),
    "in nothing": (F("a").is_in(), InvalidExpression, "1 to 100"),
    "in 101 options": (F("a").is_in(*range(101)), InvalidExpression, "1 to 100"),
    "a type that is none": (F("a").type_is("X"), InvalidExpression, "'X'"),  # type: ignore[arg-type]
    "equal to itself": (F("a") == F("a"), InvalidExpression, "itself"),
    "different from itself": (F("a", "b") != F("a", "b"), InvalidExpression, "itself"),
    "less than itself": (F("a") < F("a"), InvalidExpression, "itself"),
    "contains itself": (F("a").contains(F("a")), InvalidExpression, "itself"),
    "begins with itself": (F("a").begins_with(F("a")), InvalidExpression, "itself"),
    "between itself": (F("a").between(F("a"), F("b")), InvalidExpression, "itself"),
    "in itself": (F("a").is_in(1, F("a")), InvalidExpression, "itself"),
    "a float": (F("a") == 1.5, InvalidNumber, "not exact"),
    "39 digits": (F("a") == 10**38 + 1, InvalidNumber, "38"),
    "an empty set": (F("a") == set(), InvalidValue, "must not be empty"),
    "a strange type": (F("a") == object(), InvalidValue, "object"),
    "no condition": ("a = 1", InvalidExpression, "is not a condition"),
}


@pytest.mark.parametrize(
    ("condition", "kind", "words"),
    [pytest.param(*case, id=name) for name, case in SENSELESS.items()],
)
async def test_an_invalid_condition_is_rejected_before_anything_is_written(
    engine: Engine, condition: Any, kind: type[InvalidRequest], words: str
) -> None:
    key = {"id": fresh(), "at": "x"}
    with pytest.raises(kind, match=words):
        await engine.put(Put(STRINGS, key, condition=condition))
    with pytest.raises(kind, match=words):
        await engine.update(Update(STRINGS, key, (F("n").set(1),), condition=condition))
    with pytest.raises(kind, match=words):
        await engine.delete(Delete(STRINGS, key, condition=condition))
    with pytest.raises(kind, match=words):
        await engine.query(Query(STRINGS, F("id") == key["id"], filter=condition))
    assert await stored(engine, STRINGS, key) is None


async def test_sizes_of_one_field_may_be_compared(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "a": "xyz"}))
    same = F("a").size() == F("a").size()
    updated = await engine.update(
        Update(PLAIN, key, (F("n").set(1),), condition=same, returns="UPDATED_NEW")
    )
    assert updated.item == {"n": 1}
