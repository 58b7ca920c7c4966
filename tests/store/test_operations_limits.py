"""Size limits on every engine, exact to the byte."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tally.store.api import Engine, Put, Query, Update
from tally.store.errors import (
    InvalidExpression,
    InvalidKey,
    InvalidNumber,
    InvalidRequest,
    InvalidValue,
    ItemTooLarge,
)
from tally.store.expressions import Condition, F, make_path
from tally.store.schema import Table
from tally.store.values import MAX_ITEM_BYTES, measure_item
from tests.store.tables import BINARIES, PLAIN, PLAYERS, STRINGS, fresh, stored


def padded(item: dict[str, Any], size: int) -> dict[str, Any]:
    """The item with an attribute `pad` that fills it to this size."""
    return {**item, "pad": "x" * (size - measure_item({**item, "pad": ""}))}


FILLINGS: dict[str, dict[str, Any]] = {
    "strings": {"a": "é😀", "b": "x" * 1000},
    "numbers": {
        "a": 0,
        "b": 12,
        "c": Decimal("-1.5"),
        "d": 10**30,
        "e": Decimal("1E-130"),
        "f": 110,
    },
    "38 digits": {
        "a": 12345678901234567890123456789012345678,
        "b": Decimal("-1.2345678901234567890123456789012345678"),
    },
    "binaries": {"a": b"\x00" * 1000},
    "truth and null": {"a": True, "b": None},
    "lists and maps": {"a": [], "b": {}, "c": ["x", [1]], "d": {"k": {"l": "m"}}},
    "sets": {"a": {"x", "yz"}, "b": {1, 22, 333}, "c": {b"x"}},
    "long names": {"n" * 200: 1, "é" * 50: 2},
}


@pytest.mark.parametrize(
    "filling", [pytest.param(filling, id=name) for name, filling in FILLINGS.items()]
)
async def test_an_item_of_400_kb_fits_and_one_byte_more_does_not(
    engine: Engine, filling: dict[str, Any]
) -> None:
    """Filled with each type, so that every type is measured as by the service."""
    item = padded({"id": fresh(), **filling}, MAX_ITEM_BYTES)
    await engine.put(Put(PLAIN, item))
    assert await stored(engine, PLAIN, {"id": item["id"]}) == item
    with pytest.raises(ItemTooLarge, match=f"{MAX_ITEM_BYTES + 1} bytes"):
        await engine.put(Put(PLAIN, {**item, "pad": item["pad"] + "x"}))


async def test_an_update_may_fill_an_item_to_400_kb_and_not_one_byte_more(engine: Engine) -> None:
    key = {"id": fresh()}
    half = padded(key, MAX_ITEM_BYTES // 2)
    await engine.put(Put(PLAIN, half))
    rest = MAX_ITEM_BYTES - MAX_ITEM_BYTES // 2 - len("more")
    await engine.update(Update(PLAIN, key, (F("more").set("y" * rest),)))
    with pytest.raises(ItemTooLarge, match=r"bytes|size"):
        await engine.update(Update(PLAIN, key, (F("more").set("y" * (rest + 1)),)))
    item = await stored(engine, PLAIN, key)
    assert item is not None
    assert len(item["more"]) == rest


@pytest.mark.parametrize("letter", ["x", "é"])
async def test_a_partition_key_has_up_to_2048_bytes(engine: Engine, letter: str) -> None:
    own = fresh()
    longest = own + letter * ((2048 - len(own)) // len(letter.encode()))
    await engine.put(Put(PLAIN, {"id": longest}))
    assert await stored(engine, PLAIN, {"id": longest}) == {"id": longest}
    with pytest.raises(InvalidKey, match="the limit is 2048"):
        await engine.put(Put(PLAIN, {"id": longest + letter}))


async def test_a_sort_key_has_up_to_1024_bytes(engine: Engine) -> None:
    partition = fresh()
    for table, one in ((STRINGS, "x"), (BINARIES, b"x")):
        key = {"id": partition, "at": one * 1024}
        await engine.put(Put(table, key))
        assert await stored(engine, table, key) == key
        with pytest.raises(InvalidKey, match="1025 bytes; the limit is 1024"):
            await engine.put(Put(table, {"id": partition, "at": one * 1025}))


async def test_an_index_key_has_up_to_2048_and_1024_bytes(engine: Engine) -> None:
    item = {
        "club": fresh(),
        "name": "n",
        "team": "x" * 2048,
        "points": 1,
        "city": "x" * 1024,
        "rank": b"x" * 1024,
    }
    await engine.put(Put(PLAYERS, item))
    for name, value in (("team", "x" * 2049), ("city", "x" * 1025), ("rank", b"x" * 1025)):
        with pytest.raises(InvalidKey, match=f"{name} has {len(value)} bytes"):
            await engine.put(Put(PLAYERS, {**item, name: value}))


LONG_CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "=": lambda value: F("at") == value,
    ">": lambda value: F("at") > value,
    "<=": lambda value: F("at") <= value,
    "between, lower": lambda value: F("at").between(value, value),
    "begins_with": lambda value: F("at").begins_with(value),
}


@pytest.mark.parametrize("operator", LONG_CONDITIONS)
@pytest.mark.parametrize(("table", "one"), [(STRINGS, "x"), (BINARIES, b"x")])
async def test_a_sort_key_condition_has_up_to_1024_bytes(
    engine: Engine, table: Table, one: Any, operator: str
) -> None:
    key = {"id": fresh(), "at": one * 1024}
    await engine.put(Put(table, key))

    def query(value: Any) -> Query:
        return Query(table, (F("id") == key["id"]) & LONG_CONDITIONS[operator](value))

    page = await engine.query(query(one * 1024))
    assert page.items == ([] if operator == ">" else [key])
    with pytest.raises(InvalidKey, match="at has 1025 bytes; the limit is 1024"):
        await engine.query(query(one * 1025))


async def test_a_partition_key_condition_has_up_to_2048_bytes(engine: Engine) -> None:
    partition = fresh().ljust(2048, "x")
    await engine.put(Put(PLAIN, {"id": partition}))
    assert (await engine.query(Query(PLAIN, F("id") == partition))).items == [{"id": partition}]
    with pytest.raises(InvalidKey, match="id has 2049 bytes; the limit is 2048"):
        await engine.query(Query(PLAIN, F("id") == partition + "x"))
    with pytest.raises(InvalidKey, match="team has 2049 bytes; the limit is 2048"):
        await engine.query(Query(PLAYERS, F("team") == partition + "x", index="by-team"))


async def test_the_size_of_an_item_includes_its_entries_in_local_indexes(engine: Engine) -> None:
    item = padded({"club": fresh(), "name": "n", "age": 1}, MAX_ITEM_BYTES // 2)
    await engine.put(Put(PLAYERS, item))
    with pytest.raises(ItemTooLarge, match=f"local indexes have {MAX_ITEM_BYTES + 2} bytes"):
        await engine.put(Put(PLAYERS, {**item, "pad": item["pad"] + "x"}))
    whole = padded({"club": fresh(), "name": "in no local index"}, MAX_ITEM_BYTES)
    await engine.put(Put(PLAYERS, whole))


async def test_an_update_counts_the_entries_in_local_indexes(engine: Engine) -> None:
    item = padded({"club": fresh(), "name": "n", "age": 1}, MAX_ITEM_BYTES // 2)
    await engine.put(Put(PLAYERS, item))
    key = PLAYERS.primary_key(item)
    with pytest.raises(ItemTooLarge, match=r"local indexes|size"):
        await engine.update(Update(PLAYERS, key, (F("note").set("x"),)))
    assert await stored(engine, PLAYERS, key) == item


async def test_the_values_of_a_condition_have_up_to_2_mb(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, key, F("a") != "x" * 1_000_000))
    with pytest.raises(InvalidExpression, match="at most 2097152 bytes, not 2097153"):
        await engine.put(Put(PLAIN, key, F("a") != "x" * 2_097_153))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (("a",) * 33, "at most 32 parts, not 33"),
        (("a", 2**31), "at most 2147483647"),
        (("n" * 65_536,), "1 to 65535 bytes"),
    ],
)
def test_a_path_has_up_to_32_parts_and_valid_ones(parts: tuple[str | int, ...], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        make_path(*parts)
    assert len(make_path(*("a",) * 32).parts) == 32
    assert make_path("a", 2**31 - 1).parts == ("a", 2**31 - 1)


def nested(levels: int, kind: str) -> Any:
    value: Any = "leaf"
    for _ in range(levels - 1):
        value = [value] if kind == "list" else {"n": value}
    return value


@pytest.mark.parametrize("kind", ["list", "map"])
async def test_a_value_of_32_levels_fits_and_one_of_33_does_not(engine: Engine, kind: str) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "deep": nested(32, kind)}))
    assert await stored(engine, PLAIN, key) == {**key, "deep": nested(32, kind)}
    with pytest.raises(InvalidValue, match="nest"):
        await engine.put(Put(PLAIN, {**key, "deep": nested(33, kind)}))
    with pytest.raises(InvalidValue, match="nest"):
        await engine.update(Update(PLAIN, key, (F("deep").set(nested(33, kind)),)))


BAD_VALUES: dict[str, tuple[Any, type[InvalidRequest], str]] = {
    "a float": (0.5, InvalidNumber, "not exact"),
    "39 digits": (10**38 + 1, InvalidNumber, "38 significant digits, not 39"),
    "39 digits after the point": (
        Decimal("1." + "0" * 37 + "1"),
        InvalidNumber,
        "38 significant digits, not 39",
    ),
    "a number too large": (10**126, InvalidNumber, "at most"),
    "a number too small": (Decimal("1E-131"), InvalidNumber, "at least"),
    "no number": (Decimal("NaN"), InvalidNumber, "not a finite number"),
    "infinity": (Decimal("Infinity"), InvalidNumber, "not a finite number"),
    "an empty set": (set(), InvalidValue, "must not be empty"),
    "a mixed set": ({1, "x"}, InvalidValue, "values of one type"),
    "a set of nulls": ({None}, InvalidValue, "strings, numbers or binaries"),
    "a set of tuples": ({(1, 2)}, InvalidValue, "strings, numbers or binaries"),
    "half a surrogate pair": ("\ud83d", InvalidValue, "Unicode"),
    "an object": (object(), InvalidValue, "object"),
    "deep inside": ([{"k": [0.5]}], InvalidNumber, "not exact"),
    "a name that is no string": ({1: "x"}, InvalidValue, "name must be a string"),
    "an empty name": ({"": "x"}, InvalidValue, "1 to 65535"),
}


@pytest.mark.parametrize(
    ("value", "kind", "words"), [pytest.param(*case, id=name) for name, case in BAD_VALUES.items()]
)
async def test_a_bad_value_is_rejected_before_anything_is_written(
    engine: Engine, value: Any, kind: type[InvalidRequest], words: str
) -> None:
    key = {"id": fresh()}
    with pytest.raises(kind, match=words):
        await engine.put(Put(PLAIN, {**key, "value": value}))
    with pytest.raises(kind, match=words):
        await engine.update(Update(PLAIN, key, (F("value").set(value),)))
    assert await stored(engine, PLAIN, key) is None
