"""Queries: order, ranges, direction, limit and filter on every engine."""

from decimal import Decimal
from typing import Any

import pytest

from tally.store.api import Engine, Put, Query
from tally.store.errors import InvalidExpression, InvalidRequest, TableNotFound
from tally.store.expressions import Condition, F, Path, not_exists
from tally.store.schema import Table
from tests.store.tables import (
    BINARIES,
    NEVER_MADE,
    NUMBERED,
    NUMBERS,
    PLAIN,
    STRINGS,
    all_items,
    fresh,
    fresh_number,
)

# Each in the order that DynamoDB promises: UTF-8 bytes, numeric value, unsigned bytes.
STRING_ORDER = ("\x00", "A", "B", "a", "a\x00", "aa", "ab", "b", "é", "\uffff", "😀")
NUMBER_ORDER = tuple(
    Decimal(text)
    for text in (
        "-9.9E+125",
        "-12345678901234567890123456789012345678",
        "-100",
        "-99.5",
        "-10",
        "-9",
        "-1.5",
        "-1",
        "-0.1",
        "-0.01",
        "-1E-130",
        "0",
        "1E-130",
        "0.000012",
        "0.01",
        "0.1",
        "1",
        "1.5",
        "2",
        "9",
        "10",
        "10.01",
        "11",
        "100",
        "1E+20",
        "12345678901234567890123456789012345678",
        "9.9E+125",
    )
)
BINARY_ORDER = (
    b"\x00",
    b"\x00\x00",
    b"\x00\x01",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xfe",
    b"\xff",
    b"\xff\x00",
    b"\xff\xff",
)
ORDERS: dict[str, tuple[Table, tuple[Any, ...]]] = {
    "strings": (STRINGS, STRING_ORDER),
    "numbers": (NUMBERS, NUMBER_ORDER),
    "binaries": (BINARIES, BINARY_ORDER),
}
KINDS = [pytest.param(*case, id=name) for name, case in ORDERS.items()]


async def fill(engine: Engine, table: Table, values: tuple[Any, ...]) -> str:
    """Fill a new partition with an item at each sort key, in shuffled order.

    Return the partition.
    """
    partition = fresh()
    for value in sorted(values, key=lambda value: hash((partition, value))):
        await engine.put(Put(table, {"id": partition, "at": value, "n": values.index(value)}))
    return partition


async def found(engine: Engine, operation: Query) -> list[Any]:
    return [item["at"] for item in await all_items(engine, operation)]


@pytest.mark.parametrize(("table", "values"), KINDS)
async def test_a_query_returns_a_partition_in_sort_key_order(
    engine: Engine, table: Table, values: tuple[Any, ...]
) -> None:
    partition = await fill(engine, table, values)
    assert await found(engine, Query(table, F("id") == partition)) == list(values)
    assert await found(engine, Query(table, F("id") == partition, forward=False)) == list(
        reversed(values)
    )
    assert await found(engine, Query(table, F("id") == partition, consistent=True)) == list(values)


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize(("table", "values"), KINDS)
async def test_a_sort_key_condition_selects_its_range(
    engine: Engine, table: Table, values: tuple[Any, ...], forward: bool
) -> None:
    partition = await fill(engine, table, values)
    at, inside = F("at"), F("id") == partition

    async def ask(test: Condition) -> list[Any]:
        chosen = await found(engine, Query(table, inside & test, forward=forward))
        return chosen if forward else chosen[::-1]

    for position in (0, len(values) // 2, len(values) - 1):
        value = values[position]
        assert await ask(at == value) == [value]
        assert await ask(at < value) == list(values[:position])
        assert await ask(at <= value) == list(values[: position + 1])
        assert await ask(at > value) == list(values[position + 1 :])
        assert await ask(at >= value) == list(values[position:])
        assert await ask(
            at.between(values[1], value) if position else at.between(value, value)
        ) == list(values[1 if position else 0 : position + 1])


async def test_a_range_bound_need_not_be_an_existing_key(engine: Engine) -> None:
    partition = await fill(engine, NUMBERS, (1, 2, 3))
    inside = F("id") == partition
    assert await found(engine, Query(NUMBERS, inside & (F("at") > Decimal("1.5")))) == [2, 3]
    assert await found(engine, Query(NUMBERS, inside & (F("at") <= Decimal("2.5")))) == [1, 2]
    assert await found(
        engine, Query(NUMBERS, inside & F("at").between(Decimal("1.1"), Decimal("2.9")))
    ) == [2]
    assert await found(engine, Query(NUMBERS, inside & (F("at") > 3))) == []


@pytest.mark.parametrize("forward", [True, False])
async def test_begins_with_selects_by_prefix(engine: Engine, forward: bool) -> None:
    values = ("a", "ab", "ab\uffff", "ab😀", "abc", "ac", "b")
    partition = await fill(engine, STRINGS, values)
    test = (F("id") == partition) & F("at").begins_with("ab")
    expected = ["ab", "abc", "ab\uffff", "ab😀"]
    assert await found(engine, Query(STRINGS, test, forward=forward)) == (
        expected if forward else expected[::-1]
    )


async def test_begins_with_selects_binaries_of_the_highest_bytes(engine: Engine) -> None:
    partition = await fill(engine, BINARIES, BINARY_ORDER)
    inside = F("id") == partition
    assert await found(engine, Query(BINARIES, inside & F("at").begins_with(b"\xff"))) == [
        b"\xff",
        b"\xff\x00",
        b"\xff\xff",
    ]
    assert await found(engine, Query(BINARIES, inside & F("at").begins_with(b"\x00"))) == [
        b"\x00",
        b"\x00\x00",
        b"\x00\x01",
    ]


async def test_a_partition_key_may_be_a_prefix_of_another(engine: Engine) -> None:
    partition = fresh()
    await engine.put(Put(STRINGS, {"id": partition, "at": "1"}))
    await engine.put(Put(STRINGS, {"id": partition + "x", "at": "2"}))
    assert await found(engine, Query(STRINGS, F("id") == partition)) == ["1"]


async def test_a_partition_of_numbers_is_found_by_value(engine: Engine) -> None:
    partition = fresh_number()
    for at in (3, -1, Decimal("0.5")):
        await engine.put(Put(NUMBERED, {"id": partition, "at": at}))
    assert await found(engine, Query(NUMBERED, F("id") == Decimal(f"{partition}.0"))) == [
        -1,
        Decimal("0.5"),
        3,
    ]


async def test_a_partition_without_sort_key_has_one_item(engine: Engine) -> None:
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, "n": 1}))
    page = await engine.query(Query(PLAIN, F("id") == key["id"]))
    assert (page.items, page.scanned, page.next) == ([{**key, "n": 1}], 1, None)


async def test_an_empty_partition_is_an_empty_page(engine: Engine) -> None:
    page = await engine.query(Query(STRINGS, F("id") == fresh()))
    assert (page.items, page.scanned, page.next) == ([], 0, None)


async def test_the_limit_applies_before_the_filter(engine: Engine) -> None:
    partition = await fill(engine, NUMBERS, tuple(range(6)))
    page = await engine.query(Query(NUMBERS, F("id") == partition, filter=F("n") >= 2, limit=3))
    assert ([item["n"] for item in page.items], page.scanned) == ([2], 3)
    assert page.next == {"id": partition, "at": 2}


async def test_an_empty_page_may_have_a_next_page(engine: Engine) -> None:
    partition = await fill(engine, NUMBERS, tuple(range(4)))
    page = await engine.query(Query(NUMBERS, F("id") == partition, filter=F("n") > 9, limit=2))
    assert (page.items, page.scanned, page.next) == ([], 2, {"id": partition, "at": 1})


async def test_a_query_may_filter_by_attributes_that_it_does_not_return(engine: Engine) -> None:
    partition = fresh()
    await engine.put(
        Put(STRINGS, {"id": partition, "at": "x", "a": 1, "map": {"k": [1, 2], "z": 0}})
    )
    chosen = (Path(("at",)), Path(("map", "k", 1)))
    page = await engine.query(
        Query(STRINGS, F("id") == partition, filter=F("a") == 1, projection=chosen)
    )
    assert page.items == [{"at": "x", "map": {"k": [2]}}]


IN = F("id") == "x"
SENSELESS: dict[str, tuple[Any, str]] = {
    "no partition": (F("at") == "x", "id"),
    "a range of partitions": (F("id") > "x", "must be compared with ="),
    "a prefix of partitions": (F("id").begins_with("x"), "must be compared with ="),
    "two partitions": (IN & (F("id") == "y"), "id"),
    "two tests of the sort key": ((F("at") > "a") & IN & (F("at") < "b"), "key condition"),
    "another attribute": (IN & (F("n") == 1), "n here"),
    "different from a sort key": (IN & (F("at") != "x"), "Compare"),
    "one of several sort keys": (IN & F("at").is_in("x", "y"), "In"),
    "a negation": (IN & ~(F("at") == "x"), "Not"),
    "an or": (IN | (F("at") == "x"), "Or"),
    "a missing sort key": (IN & not_exists("at"), "Absent"),
    "a field in place of a value": (IN & (F("at") == F("n")), "with a value"),
    "a part of a key": (IN & (F("at", "k") == "x"), "with a value"),
    "a size": (IN & (F("at").size() == 1), "with a value"),
    "a partition of another type": (F("id") == 1, "type S, not N"),
    "a sort key of another type": (IN & (F("at") > 1), "type S, not N"),
    "a bound of another type": (IN & F("at").between("a", 1), "type S, not N"),
    "a range the wrong way round": (IN & F("at").between("b", "a"), "lower bound first"),
    "an empty partition": (F("id") == "", "empty"),
    "an empty sort key": (IN & (F("at") == ""), "empty"),
}


@pytest.mark.parametrize(
    ("where", "words"), [pytest.param(*case, id=name) for name, case in SENSELESS.items()]
)
async def test_an_invalid_key_condition_is_rejected(engine: Engine, where: Any, words: str) -> None:
    with pytest.raises(InvalidExpression, match=words):
        await engine.query(Query(STRINGS, where))


async def test_begins_with_on_a_number_key_is_rejected(engine: Engine) -> None:
    with pytest.raises(InvalidExpression, match="begins_with"):
        await engine.query(Query(NUMBERS, IN & F("at").begins_with(1)))


async def test_a_sort_key_test_on_a_table_without_one_is_rejected(engine: Engine) -> None:
    with pytest.raises(InvalidExpression, match="at here"):
        await engine.query(Query(PLAIN, IN & (F("at") == "x")))


@pytest.mark.parametrize("name", ["id", "at"])
async def test_a_filter_on_the_key_is_rejected(engine: Engine, name: str) -> None:
    with pytest.raises(InvalidExpression, match=f"filter.*{name}"):
        await engine.query(Query(STRINGS, IN, filter=(F("n") == 1) | (F(name) == "x")))


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1", 2**31])
async def test_a_limit_must_be_a_positive_integer(engine: Engine, limit: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"limit must be an integer from 1 to"):
        await engine.query(Query(STRINGS, IN, limit=limit))


async def test_a_query_of_an_unknown_table_is_rejected(engine: Engine) -> None:
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.query(Query(NEVER_MADE, IN))
