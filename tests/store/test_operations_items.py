"""Get, put and delete: one item by its key, on every engine."""

from decimal import Decimal
from typing import Any

import pytest

from tally.store.api import Delete, Engine, Get, Put, Update
from tally.store.errors import ConditionFailed, InvalidKey, InvalidRequest, TableNotFound
from tally.store.evaluate import equal
from tally.store.expressions import F, Path, exists, not_exists
from tests.store.expression_cases import ITEM, PROJECTIONS
from tests.store.tables import (
    BINARIES,
    NEVER_MADE,
    NUMBERED,
    PLAIN,
    STRINGS,
    fresh,
    fresh_number,
    stored,
)

ROUND_TRIPS: dict[str, Any] = {
    "a string": "text",
    "a string beyond the basic plane": "é\uffff😀\x00\n",
    "an integer": 7,
    "a negative integer": -7,
    "zero": 0,
    "a fraction": Decimal("-0.125"),
    "38 digits": 12345678901234567890123456789012345678,
    "38 digits around the point": Decimal("-1234567890123456789.0123456789012345678"),
    "the largest number": Decimal("9.9999999999999999999999999999999999999E+125"),
    "the smallest number": Decimal("1E-130"),
    "the smallest negative number": Decimal("-1E-130"),
    "a binary": bytes(range(256)),
    "true": True,
    "false": False,
    "null": None,
    "a list": ["x", 1, None, [True, {}], {"k": b"v"}],
    "an empty list": [],
    "a map": {"k": "v", "n": {"deep": [1, 2, 3]}},
    "an empty map": {},
    "a set of strings": {"x", "é", "😀"},
    "a set of numbers": {1, Decimal("2.5"), -(10**30)},
    "a set of binaries": {b"x", b"\x00\xff"},
    "a set of one": {"x"},
    "a list of sets": [{1}, {"x"}, {b"x"}],
}


@pytest.mark.parametrize(
    "value", [pytest.param(value, id=name) for name, value in ROUND_TRIPS.items()]
)
async def test_a_value_round_trips(engine: Engine, value: Any) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "value": value}))
    item = await stored(engine, PLAIN, key)
    assert item is not None
    assert equal(item, {**key, "value": value})


@pytest.mark.parametrize("value", ["", b"", [""], {"k": b""}, {""}, {"", "x"}])
async def test_an_empty_string_or_binary_is_valid_outside_of_keys(
    engine: Engine, value: Any
) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "value": value}))
    assert await stored(engine, PLAIN, key) == {**key, "value": value}


@pytest.mark.parametrize(
    "number", [Decimal("-0"), Decimal("-0.00"), Decimal("0E+40"), Decimal("0E-90")]
)
async def test_all_zeros_are_equal(engine: Engine, number: Decimal) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "value": number}))
    item = await stored(engine, PLAIN, key)
    assert item is not None
    assert str(item["value"]) == "0"


@pytest.mark.parametrize(
    "number", [10**37, 10**38, Decimal("1E+38"), -(10**125), Decimal("9.9E+125"), Decimal("2.0")]
)
async def test_a_whole_number_is_read_as_an_integer(engine: Engine, number: Any) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "n": number, "list": [number], "set": {number}}))
    item = await stored(engine, PLAIN, key)
    assert item == {**key, "n": int(number), "list": [int(number)], "set": {int(number)}}
    assert [type(value) for value in (item["n"], *item["list"], *item["set"])] == [int] * 3


@pytest.mark.parametrize("number", [Decimal("1.50"), Decimal("15E-1"), Decimal("0001.5")])
async def test_a_number_is_stored_by_value(engine: Engine, number: Decimal) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "value": number}))
    item = await stored(engine, PLAIN, key)
    assert item is not None
    assert str(item["value"]) == "1.5"


async def test_a_tuple_is_read_as_a_list(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "value": (1, ("x",))}))
    assert await stored(engine, PLAIN, key) == {**key, "value": [1, ["x"]]}


async def test_any_attribute_name_is_allowed(engine: Engine) -> None:
    """Reserved words, dots, brackets, spaces, signs and letters beyond ASCII."""
    names = ("name", "size", "a.b", "a[0]", " ", "#n", ":v", "größe", "😀", "x" * 300)
    item: dict[str, Any] = {"id": fresh(), **dict.fromkeys(names, 1)}
    await engine.put(Put(PLAIN, item, condition=not_exists("a.b") & not_exists("size")))
    found = await engine.get(
        Get(PLAIN, {"id": item["id"]}, tuple(Path((name,)) for name in names), consistent=True)
    )
    assert found.item == dict.fromkeys(names, 1)


async def test_a_missing_item_is_none(engine: Engine) -> None:
    found = await engine.get(Get(PLAIN, {"id": fresh()}))
    assert found.item is None


async def test_a_put_replaces_the_whole_item(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "old": 1, "both": 1}))
    await engine.put(Put(PLAIN, {**key, "new": 2, "both": 2}))
    assert await stored(engine, PLAIN, key) == {**key, "new": 2, "both": 2}


async def test_a_put_returns_the_old_item_on_request(engine: Engine) -> None:
    key = {"id": fresh()}
    assert (await engine.put(Put(PLAIN, {**key, "n": 1}, returns="ALL_OLD"))).item is None
    assert (await engine.put(Put(PLAIN, {**key, "n": 2}, returns="ALL_OLD"))).item == {
        **key,
        "n": 1,
    }
    assert (await engine.put(Put(PLAIN, {**key, "n": 3}))).item is None


async def test_a_delete_removes_the_item_and_returns_it_on_request(engine: Engine) -> None:
    item = {"id": fresh(), "n": 1}
    await engine.put(Put(PLAIN, item))
    deleted = await engine.delete(Delete(PLAIN, {"id": item["id"]}, returns="ALL_OLD"))
    assert deleted.item == item
    assert await stored(engine, PLAIN, {"id": item["id"]}) is None


async def test_deleting_a_missing_item_is_no_error(engine: Engine) -> None:
    assert (await engine.delete(Delete(PLAIN, {"id": fresh()}))).item is None
    assert (await engine.delete(Delete(PLAIN, {"id": fresh()}, returns="ALL_OLD"))).item is None


async def test_a_delete_with_a_failed_condition_keeps_the_item(engine: Engine) -> None:
    item = {"id": fresh(), "holder": "me"}
    await engine.put(Put(PLAIN, item))
    with pytest.raises(ConditionFailed):
        await engine.delete(Delete(PLAIN, {"id": item["id"]}, condition=F("holder") == "you"))
    assert await stored(engine, PLAIN, {"id": item["id"]}) == item
    await engine.delete(Delete(PLAIN, {"id": item["id"]}, condition=F("holder") == "me"))
    assert await stored(engine, PLAIN, {"id": item["id"]}) is None


async def test_a_conditional_delete_of_a_missing_item_sees_an_empty_item(engine: Engine) -> None:
    with pytest.raises(ConditionFailed):
        await engine.delete(Delete(PLAIN, {"id": fresh()}, condition=exists("id")))
    assert (
        await engine.delete(Delete(PLAIN, {"id": fresh()}, condition=not_exists("id")))
    ).item is None


async def test_sort_keys_distinguish_items_of_a_partition(engine: Engine) -> None:
    partition = fresh()
    for sort in ("a", "b", "ab", "A", "é"):
        await engine.put(Put(STRINGS, {"id": partition, "at": sort, "n": sort}))
    await engine.delete(Delete(STRINGS, {"id": partition, "at": "b"}))
    assert await stored(engine, STRINGS, {"id": partition, "at": "ab"}) == {
        "id": partition,
        "at": "ab",
        "n": "ab",
    }
    assert await stored(engine, STRINGS, {"id": partition, "at": "b"}) is None
    assert await stored(engine, STRINGS, {"id": partition, "at": "a"}) == {
        "id": partition,
        "at": "a",
        "n": "a",
    }


async def test_a_number_key_is_found_by_its_value(engine: Engine) -> None:
    partition = fresh_number()
    await engine.put(Put(NUMBERED, {"id": Decimal(partition), "at": Decimal("1.50"), "v": "x"}))
    found = await stored(engine, NUMBERED, {"id": partition, "at": Decimal("1.5")})
    assert found == {"id": partition, "at": Decimal("1.5"), "v": "x"}
    await engine.put(Put(NUMBERED, {"id": partition, "at": Decimal("15E-1"), "v": "y"}))
    assert await stored(engine, NUMBERED, {"id": partition, "at": Decimal("1.5")}) == {
        "id": partition,
        "at": Decimal("1.5"),
        "v": "y",
    }


async def test_a_binary_key_may_contain_any_byte(engine: Engine) -> None:
    partition = fresh()
    for sort in (b"\x00", b"\x00\x00", b"\xff", b"\x00\xff"):
        await engine.put(Put(BINARIES, {"id": partition, "at": sort, "v": sort}))
    assert await stored(engine, BINARIES, {"id": partition, "at": b"\x00\x00"}) == {
        "id": partition,
        "at": b"\x00\x00",
        "v": b"\x00\x00",
    }


@pytest.mark.parametrize(
    ("chosen", "expected"), [pytest.param(*case, id=name) for name, case in PROJECTIONS.items()]
)
async def test_a_projection_returns_parts_at_their_paths(
    engine: Engine, chosen: tuple[Path, ...], expected: dict[str, Any]
) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, **ITEM}))
    found = await engine.get(Get(PLAIN, key, chosen, consistent=True))
    assert found.item is not None
    assert equal(found.item, expected)


async def test_a_projection_includes_the_key_only_on_request(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "n": 1}))
    assert (await engine.get(Get(PLAIN, key, (Path(("n",)),)))).item == {"n": 1}
    assert (await engine.get(Get(PLAIN, key, (Path(("n",)), Path(("id",)))))).item == {
        **key,
        "n": 1,
    }


@pytest.mark.parametrize(
    "chosen",
    [
        (Path(("a",)), Path(("a",))),
        (Path(("a",)), Path(("a", "b"))),
        (Path(("a", "b", 0)), Path(("a", "b"))),
        (Path(("a", 0)), Path(("a", "b"))),
    ],
)
async def test_a_projection_that_overlaps_is_rejected(
    engine: Engine, chosen: tuple[Path, ...]
) -> None:
    with pytest.raises(InvalidRequest, match=r"overlap|map and as a list"):
        await engine.get(Get(PLAIN, {"id": "x"}, chosen))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ({}, "id is missing"),
        ({"id": 1}, "id is of type S, not N"),
        ({"id": ""}, "id is empty"),
        ({"id": "x" * 2049}, "2049 bytes; the limit is 2048"),
        ({"id": "x", "more": 1}, "more is not part of the key"),
    ],
)
async def test_a_wrong_key_is_rejected_by_every_operation(
    engine: Engine, key: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidKey, match=words):
        await engine.get(Get(PLAIN, key))
    with pytest.raises(InvalidKey, match=words):
        await engine.delete(Delete(PLAIN, key))
    with pytest.raises(InvalidKey, match=words):
        await engine.update(Update(PLAIN, key, (F("a").set(1),)))
    if "more" not in key:
        with pytest.raises(InvalidKey, match=words):
            await engine.put(Put(PLAIN, key))


async def test_an_unknown_table_is_rejected_by_every_operation(engine: Engine) -> None:
    key = {"id": fresh()}
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.get(Get(NEVER_MADE, key))
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.put(Put(NEVER_MADE, key))
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.update(Update(NEVER_MADE, key, (F("a").set(1),)))
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.delete(Delete(NEVER_MADE, key))


@pytest.mark.parametrize("returns", ["ALL_NEW", "UPDATED_OLD", "UPDATED_NEW", "SOME"])
async def test_puts_and_deletes_return_only_the_old_item(engine: Engine, returns: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"NONE, ALL_OLD, not {returns}"):
        await engine.put(Put(PLAIN, {"id": fresh()}, returns=returns))
    with pytest.raises(InvalidRequest, match=f"NONE, ALL_OLD, not {returns}"):
        await engine.delete(Delete(PLAIN, {"id": fresh()}, returns=returns))
