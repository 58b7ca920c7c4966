"""What the embedded engine writes as one, items and callers, comes to the same as each on its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.store.api import (
    BatchPut,
    ColumnarItems,
    Put,
    Scan,
    Transaction,
    TransactionBatch,
    TransactionResult,
)
from tally.store.errors import (
    InvalidNumber,
    InvalidRequest,
    InvalidValue,
    ItemTooLarge,
    StoreError,
    TransactionCancelled,
)
from tally.store.schema import GlobalIndex, S, Table
from tally.store.sqlite import SqliteEngine
from tally.store.sqlite.codec import pack, unpack
from tally.store.sqlite.layout import Row, compile_layout
from tally.store.values import MAX_ITEM_BYTES, measure_item
from tests.faults.groups import one_group
from tests.store.strategies import items
from tests.store.tables import NEW, PLAIN, STRINGS, embedded, once, stored


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with embedded(tmp_path, PLAIN, STRINGS) as opened:
        yield opened


def told(outcomes: list[TransactionResult | StoreError]) -> list[str]:
    """Each outcome in a word: done, or who had been there before."""
    return [_told(outcome) for outcome in outcomes]


def _told(outcome: TransactionResult | StoreError) -> str:
    if isinstance(outcome, TransactionResult):
        return "done"
    assert isinstance(outcome, TransactionCancelled)
    item = outcome.reasons[0].item
    assert item is not None
    return f"after {item['by']}"


async def in_one_group(
    engine: SqliteEngine, *asked: list[Transaction]
) -> list[list[TransactionResult | StoreError]]:
    with one_group(engine):
        waiting = [
            asyncio.ensure_future(engine.transact_each(transactions)) for transactions in asked
        ]
        await asyncio.sleep(0)  # a task asks when it first runs
    return await asyncio.gather(*waiting)


async def test_callers_that_share_a_commit_get_their_own_answers(engine: SqliteEngine) -> None:
    await engine.transact_each([once("there", "an earlier one")])
    answers = await in_one_group(
        engine,
        [once(f"a-{number}", "ann") for number in range(3)],
        [once("b-0", "bob"), once("there", "bob"), once("b-1", "bob")],
        [once("c-0", "cid")],
        [once(f"d-{number}", "dan") for number in range(300)],
    )
    assert [told(outcomes) for outcomes in answers[:3]] == [
        ["done"] * 3,
        ["done", "after an earlier one", "done"],
        ["done"],
    ]
    assert told(answers[3]) == ["done"] * 300
    assert (await engine.scan(Scan(PLAIN))).scanned == 3 + 2 + 1 + 300 + 1
    assert await stored(engine, STRINGS, {"id": "there", "at": "x"}) == {
        "id": "there",
        "at": "x",
        "by": "an earlier one",
    }
    assert await stored(engine, STRINGS, {"id": "b-1", "at": "x"}) == {
        "id": "b-1",
        "at": "x",
        "by": "bob",
    }


async def test_of_callers_that_share_a_commit_and_want_one_item_the_first_gets_it(
    engine: SqliteEngine,
) -> None:
    first, second, third = await in_one_group(
        engine,
        [once("a", "ann"), once("b", "ann")],
        [once("b", "bob"), once("c", "bob")],
        [once("c", "cid"), once("d", "cid")],
    )
    assert told(first) == ["done", "done"]
    assert told(second) == ["after ann", "done"]
    assert told(third) == ["after bob", "done"]


async def test_what_was_asked_for_between_them_is_done_between_them(engine: SqliteEngine) -> None:
    """A put of the same item that comes second replaces, and makes a third's new item an old one."""
    with one_group(engine):
        before = asyncio.ensure_future(engine.transact_each([once("a", "ann")]))
        await asyncio.sleep(0)
        put = asyncio.ensure_future(engine.put(Put(PLAIN, {"id": "a", "by": "bob"})))
        await asyncio.sleep(0)
        after = asyncio.ensure_future(engine.transact_each([once("a", "cid")]))
        await asyncio.sleep(0)
    await put
    assert (told(await before), told(await after)) == (["done"], ["after bob"])


async def test_new_items_and_old_ones_may_be_put_at_once(engine: SqliteEngine) -> None:
    for number in range(0, 40, 3):
        await engine.put(Put(PLAIN, {"id": f"{number}", "note": "old" * 700}))
    puts = [Put(PLAIN, {"id": f"{number}", "note": "new"}) for number in range(40)]
    outcomes = await engine.transact_each([Transaction((put,)) for put in puts])
    costs = [
        outcome.capacity.write for outcome in outcomes if isinstance(outcome, TransactionResult)
    ]
    assert costs == [6.0 if number % 3 == 0 else 2.0 for number in range(40)]
    found = (await engine.scan(Scan(PLAIN))).items
    assert {item["id"]: item["note"] for item in found} == {
        f"{number}": "new" for number in range(40)
    }


async def test_items_that_are_there_are_found_wherever_they_stand_among_new_ones(
    engine: SqliteEngine,
) -> None:
    old = {0, 1, 77, 127, 128, 255, 256, 298, 299}
    for number in old:
        await engine.transact(once(f"{number}", "an earlier one"))
    outcomes = await engine.transact_each([once(f"{number}", "bob") for number in range(300)])
    assert told(outcomes) == [
        "after an earlier one" if number in old else "done" for number in range(300)
    ]
    for table in (PLAIN, STRINGS):
        found = (await engine.scan(Scan(table))).items
        assert {int(item["id"]) for item in found if item["by"] == "bob"} == set(range(300)) - old
        assert len(found) == 300


async def test_transactions_said_to_be_alike_come_to_the_same(engine: SqliteEngine) -> None:
    names = [f"{number}" for number in range(20)]
    await engine.transact(once("7", "an earlier one"))
    items: list[dict[str, Any]] = [{"id": name} for name in names]
    alike = TransactionBatch(
        BatchPut(PLAIN, items, {"by": "bob"}, NEW),
        BatchPut(STRINGS, items, {"at": "x", "by": "bob"}),
    )
    assert [*alike] == [once(name, "bob") for name in names]
    assert alike[1:3] == [once("1", "bob"), once("2", "bob")]
    assert told(await engine.transact_each(alike)) == [
        "after an earlier one" if name == "7" else "done" for name in names
    ]
    assert await stored(engine, STRINGS, {"id": "8", "at": "x"}) == {
        "id": "8",
        "at": "x",
        "by": "bob",
    }


def test_transactions_that_are_alike_have_all_their_puts() -> None:
    with pytest.raises(InvalidRequest, match="equally many items"):
        TransactionBatch(BatchPut(PLAIN, [{"id": "a"}]), BatchPut(STRINGS, []))


async def test_a_table_that_got_an_index_in_the_same_group_has_all_items_in_it(
    engine: SqliteEngine,
) -> None:
    grown = Table("plain", partition=S("id"), indexes=(GlobalIndex("by-by", partition=S("by")),))
    with one_group(engine):
        before = asyncio.ensure_future(engine.transact_each([once("a", "ann")]))
        await asyncio.sleep(0)
        change = asyncio.ensure_future(engine.ensure_table(grown))
        await asyncio.sleep(0)
        after = asyncio.ensure_future(engine.transact_each([once("b", "bob")]))
        await asyncio.sleep(0)
    await change
    assert (told(await before), told(await after)) == (["done"], ["done"])
    assert sorted(item["id"] for item in (await engine.scan(Scan(grown, index="by-by"))).items) == [
        "a",
        "b",
    ]


@given(chosen=st.lists(items(), min_size=1, max_size=3), common=items(), count=st.integers(1, 9))
def test_packing_and_measuring_many_comes_to_the_same_as_each_by_itself(
    chosen: list[dict[str, Any]], common: dict[str, Any], count: int
) -> None:
    """Whether or not they have the same names, and also where a name is both in an item and common to all."""
    many = [{**chosen[number % len(chosen)], "id": f"{number}"} for number in range(count)]
    expect_like_each_by_itself(rows_of(many, common), many, common)


@given(item=items(), common=items(), count=st.integers(1, 9))
def test_items_told_by_attribute_come_to_the_same(
    item: dict[str, Any], common: dict[str, Any], count: int
) -> None:
    many = [{**item, "id": f"{number}"} for number in range(count)]
    columns = ColumnarItems({name: [each[name] for each in many] for name in many[0]})
    assert [*columns] == many
    assert columns[:2] == many[:2]
    expect_like_each_by_itself(rows_of(columns, common), many, common)


def test_columns_have_a_value_for_every_item() -> None:
    for values in ({}, {"id": ["a", "b"], "by": ["bob"]}):
        with pytest.raises(InvalidRequest, match="columns of equal length"):
            ColumnarItems(values)


def rows_of(many: Sequence[dict[str, Any]], common: dict[str, Any]) -> list[Row]:
    return compile_layout(PLAIN).encode_rows(many, common).rows


def expect_like_each_by_itself(
    rows: list[Row], many: list[dict[str, Any]], common: dict[str, Any]
) -> None:
    """The same, if not byte for byte: of two spellings of a number, 20 and 20.0, either may be remembered."""
    whole = [{**common, **item} for item in many]
    assert [size for *_, size, _ in rows] == [measure_item(item) for item in whole]
    assert [unpack(packed) for _, _, packed, _, _ in rows] == [unpack(pack(item)) for item in whole]
    assert [(pk, sk) for pk, sk, *_ in rows] == [(item["id"].encode(), b"") for item in many]


def test_what_every_item_has_in_common_is_packed_as_if_each_had_it() -> None:
    many: list[dict[str, Any]] = [
        {
            "id": f"{number}",
            "n": number,
            "text": f"é{number}",
            "map": {"half": Decimal(number) / 2, "on": True},
        }
        for number in range(50)
    ]
    common: dict[str, Any] = {f"name-{number}": {"x": number} for number in range(20)}
    expect_like_each_by_itself(rows_of(many, common), many, common)


def test_numbers_that_are_equal_are_packed_as_equals() -> None:
    """Also a zero with a sign, and one that was written with more places than another."""
    for values in (
        ["0.5", "0.50", "5E-1"],
        ["0.0", "-0.0", "0"],
        ["-7.25", "-7.250"],
        ["20", "20.0", "2E1"],
    ):
        many = [
            {"id": f"{number}", "map": {"n": Decimal(value), "i": number}}
            for number, value in enumerate(values * 3)
        ]
        kept = [unpack(packed)["map"]["n"] for _, _, packed, _, _ in rows_of(many, {})]
        assert kept == [Decimal(values[0])] * len(many)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"n": Decimal("sNaN")}, InvalidNumber),
        ({"n": Decimal("Infinity")}, InvalidNumber),
        ({"n": Decimal(10) ** 126}, InvalidNumber),
        ({"n": 0.5}, InvalidNumber),
        ({"n": {1, "a"}}, InvalidValue),
        ({1: "n"}, InvalidValue),
        ("x" * MAX_ITEM_BYTES, ItemTooLarge),
        ("\ud800", InvalidValue),
    ],
)
@pytest.mark.parametrize("count", [1, 10])
def test_what_measuring_refuses_is_refused_among_many(
    value: Any, error: type[StoreError], count: int
) -> None:
    with pytest.raises(error) as alone:
        measure_item({"id": "a", "value": value})
    for common, item in (({}, {"id": "a", "value": value}), ({"value": value}, {"id": "a"})):
        with pytest.raises(error) as among:
            rows_of([item] * count, common)
        assert str(among.value) == str(alone.value)


@pytest.mark.parametrize("key", ["", "\ud800", "x" * 3000, 7, None])
def test_a_key_that_is_refused_alone_is_refused_among_many(key: Any) -> None:
    """With the same words, whether or not the key is common to all."""
    layout = compile_layout(PLAIN)
    with pytest.raises(StoreError) as alone:
        layout.encode_rows([{"id": key}], {})
    for many, common in (
        ([{"id": key, "n": number} for number in range(9)], {}),
        ([{"n": number} for number in range(9)], {"id": key}),
    ):
        with pytest.raises(StoreError) as among:
            layout.encode_rows(many, common)
        assert (type(among.value), str(among.value)) == (type(alone.value), str(alone.value))
