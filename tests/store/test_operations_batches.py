"""Batch reads and writes on every engine: limits and independence of the items."""

from decimal import Decimal
from typing import Any

import pytest

from tally.store.api import BatchGet, BatchWrite, Engine, Get, Put, TransactionGet
from tally.store.errors import (
    DuplicateItem,
    InvalidKey,
    InvalidNumber,
    InvalidRequest,
    ItemTooLarge,
    TableNotFound,
    TooManyItems,
)
from tally.store.expressions import make_path
from tests.store.tables import NEVER_MADE, NUMBERED, PLAIN, STRINGS, fresh, fresh_number, stored


def by_id(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in items}


async def write_all(engine: Engine, batch: BatchWrite) -> None:
    """Send a batch and its unprocessed rest a few times."""
    rest: BatchWrite | None = batch
    for _ in range(10):
        assert rest is not None
        rest = (await engine.batch_write(rest)).unprocessed
        if rest is None:
            return
    raise AssertionError("the batch was never done")


async def test_a_batch_of_25_writes_is_written(engine: Engine) -> None:
    items = [{"id": fresh(), "n": number} for number in range(25)]
    written = await engine.batch_write(BatchWrite(PLAIN, puts=tuple(items)))
    assert written.unprocessed is None
    found = await engine.batch_get(
        BatchGet(PLAIN, tuple({"id": item["id"]} for item in items), consistent=True)
    )
    assert by_id(found.items) == by_id(items)
    assert found.unprocessed == ()


async def test_a_batch_puts_and_deletes(engine: Engine) -> None:
    old = [{"id": fresh(), "n": number} for number in range(3)]
    for item in old:
        await engine.put(Put(PLAIN, item))
    new = {"id": fresh(), "n": 9}
    replaced = {"id": old[0]["id"], "m": 1}
    deletes = ({"id": old[1]["id"]}, {"id": fresh()})
    await write_all(engine, BatchWrite(PLAIN, puts=(new, replaced), deletes=deletes))
    keys = tuple({"id": item["id"]} for item in (*old, new))
    found = await engine.batch_get(BatchGet(PLAIN, keys, consistent=True))
    assert by_id(found.items) == by_id([replaced, old[2], new])


async def test_a_batch_reads_100_keys_and_omits_missing_items(engine: Engine) -> None:
    items = [{"id": fresh()} for _ in range(50)]
    for first in (0, 25):
        await write_all(engine, BatchWrite(PLAIN, puts=tuple(items[first : first + 25])))
    keys = (*items, *({"id": fresh()} for _ in range(50)))
    found = await engine.batch_get(BatchGet(PLAIN, tuple(keys), consistent=True))
    assert by_id(found.items) == by_id(items)


async def test_a_batch_read_applies_its_projection(engine: Engine) -> None:
    items = [{"id": fresh(), "n": number, "map": {"k": number, "z": 0}} for number in range(2)]
    await write_all(engine, BatchWrite(PLAIN, puts=tuple(items)))
    keys = tuple({"id": item["id"]} for item in items)
    found = await engine.batch_get(BatchGet(PLAIN, keys, (make_path("map", "k"), make_path("id"))))
    assert by_id(found.items) == {
        item["id"]: {"id": item["id"], "map": {"k": item["n"]}} for item in items
    }


async def test_a_batch_that_reads_more_than_16_mb_leaves_the_rest_unprocessed(
    engine: Engine,
) -> None:
    items = [{"id": fresh(), "text": "x" * 390_000} for _ in range(50)]
    for item in items:
        await engine.put(Put(PLAIN, item))
    keys = tuple({"id": item["id"]} for item in items)
    found = await engine.batch_get(BatchGet(PLAIN, keys))
    assert 0 < len(found.unprocessed) < 50
    left = {key["id"] for key in found.unprocessed}
    assert left | {item["id"] for item in found.items} == {item["id"] for item in items}
    rest = await engine.batch_get(BatchGet(PLAIN, found.unprocessed))
    assert {item["id"] for item in rest.items} == left


@pytest.mark.parametrize("count", [26, 100])
async def test_more_than_25_writes_are_rejected(engine: Engine, count: int) -> None:
    items = tuple({"id": fresh()} for _ in range(count))
    with pytest.raises(TooManyItems, match=f"at most 25 items, not {count}"):
        await engine.batch_write(BatchWrite(PLAIN, puts=items))
    with pytest.raises(TooManyItems, match=f"at most 25 items, not {count}"):
        await engine.batch_write(BatchWrite(PLAIN, puts=items[:20], deletes=items[20:]))
    assert await stored(engine, PLAIN, items[0]) is None


async def test_more_than_100_reads_are_rejected(engine: Engine) -> None:
    keys = tuple({"id": fresh()} for _ in range(101))
    with pytest.raises(TooManyItems, match="at most 100 items, not 101"):
        await engine.batch_get(BatchGet(PLAIN, keys))


async def test_an_empty_batch_is_rejected(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        await engine.batch_write(BatchWrite(PLAIN))
    with pytest.raises(InvalidRequest, match="empty"):
        await engine.batch_get(BatchGet(PLAIN, ()))


async def test_a_batch_that_names_an_item_twice_is_rejected(engine: Engine) -> None:
    key = {"id": fresh()}
    with pytest.raises(DuplicateItem, match="twice"):
        await engine.batch_write(BatchWrite(PLAIN, puts=({**key, "n": 1}, {**key, "n": 2})))
    with pytest.raises(DuplicateItem, match="twice"):
        await engine.batch_write(BatchWrite(PLAIN, puts=({**key, "n": 1},), deletes=(key,)))
    with pytest.raises(DuplicateItem, match="twice"):
        await engine.batch_get(BatchGet(PLAIN, (key, dict(key))))
    assert await stored(engine, PLAIN, key) is None


async def test_equal_numbers_are_one_key(engine: Engine) -> None:
    number = fresh_number()
    with pytest.raises(DuplicateItem, match="twice"):
        await engine.batch_get(
            BatchGet(NUMBERED, ({"id": number, "at": 1}, {"id": number, "at": Decimal("1.0")}))
        )


@pytest.mark.parametrize(
    ("item", "kind", "words"),
    [
        ({"n": 1}, InvalidKey, "id is missing"),
        ({"id": ""}, InvalidKey, "id is empty"),
        ({"id": 1}, InvalidKey, "type S, not N"),
        ({"id": "x", "n": 0.5}, InvalidNumber, "not exact"),
        ({"id": "x", "n": 10**38 + 1}, InvalidNumber, "39"),
        ({"id": "x", "text": "x" * 409_600}, ItemTooLarge, "bytes"),
    ],
)
async def test_one_invalid_item_rejects_the_whole_batch(
    engine: Engine, item: dict[str, Any], kind: type[InvalidRequest], words: str
) -> None:
    good = {"id": fresh()}
    with pytest.raises(kind, match=words):
        await engine.batch_write(BatchWrite(PLAIN, puts=(good, item)))
    assert await stored(engine, PLAIN, good) is None


async def test_one_invalid_key_rejects_the_whole_batch(engine: Engine) -> None:
    good = {"id": fresh(), "at": "x"}
    await engine.put(Put(STRINGS, good))
    with pytest.raises(InvalidKey, match="at is missing"):
        await engine.batch_write(BatchWrite(STRINGS, deletes=(good, {"id": "x"})))
    with pytest.raises(InvalidKey, match="n is not part of the key"):
        await engine.batch_get(BatchGet(STRINGS, ({**good, "n": 1},)))
    assert await stored(engine, STRINGS, good) == good


async def test_a_batch_on_an_unknown_table_is_rejected(engine: Engine) -> None:
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.batch_write(BatchWrite(NEVER_MADE, puts=({"id": "x"},)))
    with pytest.raises(TableNotFound, match="never-made"):
        await engine.batch_get(BatchGet(NEVER_MADE, ({"id": "x"},)))


async def test_a_batch_of_reads_and_a_transaction_of_reads_agree(engine: Engine) -> None:
    items = [{"id": fresh(), "n": number} for number in range(3)]
    await write_all(engine, BatchWrite(PLAIN, puts=tuple(items)))
    keys = [{"id": item["id"]} for item in items]
    batch = await engine.batch_get(BatchGet(PLAIN, tuple(keys), consistent=True))
    together = await engine.transact_get(TransactionGet(tuple(Get(PLAIN, key) for key in keys)))
    assert together.items == items
    assert by_id(batch.items) == by_id(items)
