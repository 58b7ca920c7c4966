"""Bulk writes have the same results as individual writes, also across callers."""

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
from tally.store.sqlite.layout import Layout, Row, compile_layout
from tally.store.sqlite.shapes import Shapes
from tally.store.values import MAX_ITEM_BYTES, Item, measure_item
from tests.faults.write_groups import one_group
from tests.store.strategies import items
from tests.store.tables import NEW, PLAIN, STRINGS, embedded, once, stored


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    async with embedded(tmp_path, PLAIN, STRINGS) as opened:
        yield opened


def describe_outcomes(outcomes: list[TransactionResult | StoreError]) -> list[str]:
    """Describe each outcome: `done`, or the existing item's writer."""
    return [_describe(outcome) for outcome in outcomes]


def _describe(outcome: TransactionResult | StoreError) -> str:
    if isinstance(outcome, TransactionResult):
        return "done"
    assert isinstance(outcome, TransactionCancelled)
    item = outcome.reasons[0].item
    assert item is not None
    return f"after {item['by']}"


async def in_one_group(
    engine: SqliteEngine, *batches: list[Transaction]
) -> list[list[TransactionResult | StoreError]]:
    with one_group(engine):
        waiting = [
            asyncio.ensure_future(engine.transact_each(transactions)) for transactions in batches
        ]
        await asyncio.sleep(0)  # a task sends its request when it first runs
    return await asyncio.gather(*waiting)


async def test_callers_that_share_a_commit_get_their_own_results(engine: SqliteEngine) -> None:
    await engine.transact_each([once("there", "an earlier one")])
    outcome_lists = await in_one_group(
        engine,
        [once(f"a-{number}", "ann") for number in range(3)],
        [once("b-0", "bob"), once("there", "bob"), once("b-1", "bob")],
        [once("c-0", "cid")],
        [once(f"d-{number}", "dan") for number in range(300)],
    )
    assert [describe_outcomes(outcomes) for outcomes in outcome_lists[:3]] == [
        ["done"] * 3,
        ["done", "after an earlier one", "done"],
        ["done"],
    ]
    assert describe_outcomes(outcome_lists[3]) == ["done"] * 300
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


async def test_the_first_caller_in_a_commit_creates_a_contended_item(
    engine: SqliteEngine,
) -> None:
    first, second, third = await in_one_group(
        engine,
        [once("a", "ann"), once("b", "ann")],
        [once("b", "bob"), once("c", "bob")],
        [once("c", "cid"), once("d", "cid")],
    )
    assert describe_outcomes(first) == ["done", "done"]
    assert describe_outcomes(second) == ["after ann", "done"]
    assert describe_outcomes(third) == ["after bob", "done"]


async def test_jobs_between_batches_run_in_order(engine: SqliteEngine) -> None:
    """A put of the same item between two batches replaces it and makes the next insert fail."""
    with one_group(engine):
        before = asyncio.ensure_future(engine.transact_each([once("a", "ann")]))
        await asyncio.sleep(0)
        put = asyncio.ensure_future(engine.put(Put(PLAIN, {"id": "a", "by": "bob"})))
        await asyncio.sleep(0)
        after = asyncio.ensure_future(engine.transact_each([once("a", "cid")]))
        await asyncio.sleep(0)
    await put
    assert (describe_outcomes(await before), describe_outcomes(await after)) == (
        ["done"],
        ["after bob"],
    )


async def test_a_batch_may_put_new_and_existing_items(engine: SqliteEngine) -> None:
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


async def test_existing_items_are_detected_at_any_position(
    engine: SqliteEngine,
) -> None:
    old = {0, 1, 77, 127, 128, 255, 256, 298, 299}
    for number in old:
        await engine.transact(once(f"{number}", "an earlier one"))
    outcomes = await engine.transact_each([once(f"{number}", "bob") for number in range(300)])
    assert describe_outcomes(outcomes) == [
        "after an earlier one" if number in old else "done" for number in range(300)
    ]
    for table in (PLAIN, STRINGS):
        found = (await engine.scan(Scan(table))).items
        assert {int(item["id"]) for item in found if item["by"] == "bob"} == set(range(300)) - old
        assert len(found) == 300


async def test_a_transaction_batch_equals_single_transactions(engine: SqliteEngine) -> None:
    names = [f"{number}" for number in range(20)]
    await engine.transact(once("7", "an earlier one"))
    items: list[dict[str, Any]] = [{"id": name} for name in names]
    alike = TransactionBatch(
        BatchPut(PLAIN, items, {"by": "bob"}, NEW),
        BatchPut(STRINGS, items, {"at": "x", "by": "bob"}),
    )
    assert [*alike] == [once(name, "bob") for name in names]
    assert alike[1:3] == [once("1", "bob"), once("2", "bob")]
    assert describe_outcomes(await engine.transact_each(alike)) == [
        "after an earlier one" if name == "7" else "done" for name in names
    ]
    assert await stored(engine, STRINGS, {"id": "8", "at": "x"}) == {
        "id": "8",
        "at": "x",
        "by": "bob",
    }


def test_a_transaction_batch_needs_equally_many_items_in_each_put() -> None:
    with pytest.raises(InvalidRequest, match="equally many items"):
        TransactionBatch(BatchPut(PLAIN, [{"id": "a"}]), BatchPut(STRINGS, []))


async def test_an_index_created_in_the_same_group_contains_all_items(
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
    assert (describe_outcomes(await before), describe_outcomes(await after)) == (["done"], ["done"])
    assert sorted(item["id"] for item in (await engine.scan(Scan(grown, index="by-by"))).items) == [
        "a",
        "b",
    ]


@given(chosen=st.lists(items(), min_size=1, max_size=3), common=items(), count=st.integers(1, 9))
def test_columnar_encoding_equals_encoding_item_by_item(
    chosen: list[dict[str, Any]], common: dict[str, Any], count: int
) -> None:
    """With equal or different attributes, and with a name that is both common and individual."""
    many = [{**chosen[number % len(chosen)], "id": f"{number}"} for number in range(count)]
    expect_like_individual_rows(rows_of(many, common), many, common)


@given(item=items(), common=items(), count=st.integers(1, 9))
def test_columnar_items_equal_plain_items(
    item: dict[str, Any], common: dict[str, Any], count: int
) -> None:
    many = [{**item, "id": f"{number}"} for number in range(count)]
    columns = ColumnarItems({name: [entry[name] for entry in many] for name in many[0]})
    assert [*columns] == many
    assert columns[:2] == many[:2]
    expect_like_individual_rows(rows_of(columns, common), many, common)


def test_columns_must_have_equal_length() -> None:
    for values in ({}, {"id": ["a", "b"], "by": ["bob"]}):
        with pytest.raises(InvalidRequest, match="columns of equal length"):
            ColumnarItems(values)


def plain_layout() -> Layout:
    return compile_layout(PLAIN, Shapes())


def rows_of(many: Sequence[dict[str, Any]], common: dict[str, Any]) -> list[Row]:
    return plain_layout().encode_rows(many, common).rows


def items_of(rows: list[Row]) -> list[Item]:
    packer = plain_layout().packer
    return [packer.unpack(packed, (pk, sk)) for pk, sk, packed, _ in rows]


def expect_like_individual_rows(
    rows: list[Row], many: list[dict[str, Any]], common: dict[str, Any]
) -> None:
    """Compare with individual encodings; equal numbers such as 20 and 20.0 may be encoded alike."""
    whole = [{**common, **item} for item in many]
    assert [size for *_, size in rows] == [measure_item(item) for item in whole]
    assert items_of(rows) == [unpack(pack(item)) for item in whole]
    assert [(pk, sk) for pk, sk, *_ in rows] == [(item["id"].encode(), b"") for item in many]


def test_common_attributes_are_encoded_in_every_item() -> None:
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
    expect_like_individual_rows(rows_of(many, common), many, common)


def test_equal_numbers_have_equal_encodings() -> None:
    """Including negative zero and trailing zeros."""
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
        kept = [item["map"]["n"] for item in items_of(rows_of(many, {}))]
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
def test_an_invalid_value_is_rejected_among_many(
    value: Any, error: type[StoreError], count: int
) -> None:
    with pytest.raises(error) as alone:
        measure_item({"id": "a", "value": value})
    for common, item in (({}, {"id": "a", "value": value}), ({"value": value}, {"id": "a"})):
        with pytest.raises(error) as among:
            rows_of([item] * count, common)
        assert str(among.value) == str(alone.value)


@pytest.mark.parametrize("key", ["", "\ud800", "x" * 3000, 7, None])
def test_an_invalid_key_is_rejected_among_many(key: Any) -> None:
    """With the same message, whether or not the key is common to all."""
    layout = plain_layout()
    with pytest.raises(StoreError) as alone:
        layout.encode_rows([{"id": key}], {})
    for many, common in (
        ([{"id": key, "n": number} for number in range(9)], {}),
        ([{"n": number} for number in range(9)], {"id": key}),
    ):
        with pytest.raises(StoreError) as among:
            layout.encode_rows(many, common)
        assert (type(among.value), str(among.value)) == (type(alone.value), str(alone.value))
