"""Transactions on every engine: atomicity, one reason per item, tokens and limits."""

import asyncio
from typing import Any

import pytest

from tally.store.api import (
    MAX_TRANSACTION_BYTES,
    Check,
    Delete,
    Engine,
    Get,
    Put,
    Query,
    Transaction,
    TransactionGet,
    Update,
    Write,
)
from tally.store.errors import (
    DuplicateItem,
    InvalidExpression,
    InvalidKey,
    InvalidRequest,
    ItemTooLarge,
    RequestTooLarge,
    TableNotFound,
    TokenMismatch,
    TooManyItems,
    TransactionCancelled,
)
from tally.store.expressions import F, exists, make_path, not_exists
from tests.store.tables import NEVER_MADE, PLAIN, STRINGS, fresh, stored


async def put(engine: Engine, **attributes: Any) -> dict[str, Any]:
    """Put a new item with these attributes; return its key."""
    key = {"id": fresh()}
    await engine.put(Put(PLAIN, {**key, **attributes}))
    return key


def codes(refusal: pytest.ExceptionInfo[TransactionCancelled]) -> list[str]:
    return [reason.code for reason in refusal.value.reasons]


async def test_a_transaction_puts_updates_deletes_and_checks(engine: Engine) -> None:
    updated, deleted, checked = (
        await put(engine, n=1),
        await put(engine),
        await put(engine, ok=True),
    )
    new = {"id": fresh(), "n": 9}
    writes = (
        Put(PLAIN, new, condition=not_exists("id")),
        Update(PLAIN, updated, (F("n").set(F("n") + 1),), condition=F("n") == 1),
        Delete(PLAIN, deleted, condition=exists("id")),
        Check(PLAIN, checked, F("ok") == True),  # noqa: E712 - builds a condition
    )
    await engine.transact(Transaction(writes))
    assert await stored(engine, PLAIN, {"id": new["id"]}) == new
    assert await stored(engine, PLAIN, updated) == {**updated, "n": 2}
    assert await stored(engine, PLAIN, deleted) is None
    assert await stored(engine, PLAIN, checked) == {**checked, "ok": True}


async def test_a_transaction_spans_tables(engine: Engine) -> None:
    one, two = {"id": fresh()}, {"id": fresh(), "at": "x"}
    await engine.transact(Transaction((Put(PLAIN, one), Put(STRINGS, two))))
    assert await stored(engine, PLAIN, one) == one
    assert await stored(engine, STRINGS, two) == two


async def test_a_failed_condition_cancels_all_writes_with_one_reason_per_item(
    engine: Engine,
) -> None:
    there, other = await put(engine, n=1), await put(engine, n=2)
    new = {"id": fresh()}
    writes = (
        Put(PLAIN, new),
        Update(PLAIN, there, (F("n").add(1),), condition=F("n") == 5),
        Delete(PLAIN, other),
        Check(PLAIN, {"id": fresh()}, exists("id")),
    )
    with pytest.raises(TransactionCancelled, match="ConditionalCheckFailed") as refusal:
        await engine.transact(Transaction(writes))
    assert codes(refusal) == ["None", "ConditionalCheckFailed", "None", "ConditionalCheckFailed"]
    assert [reason.condition_failed for reason in refusal.value.reasons] == [
        False,
        True,
        False,
        True,
    ]
    assert await stored(engine, PLAIN, new) is None
    assert await stored(engine, PLAIN, there) == {**there, "n": 1}
    assert await stored(engine, PLAIN, other) == {**other, "n": 2}


async def test_the_reason_of_a_failed_condition_includes_the_item(engine: Engine) -> None:
    there = await put(engine, n=1, map={"k": [1]})
    with pytest.raises(TransactionCancelled) as refusal:
        await engine.transact(
            Transaction(
                (
                    Put(PLAIN, {**there, "n": 2}, condition=not_exists("id")),
                    Put(PLAIN, {"id": fresh()}, condition=exists("id")),
                    Put(PLAIN, {"id": fresh()}),
                )
            )
        )
    assert [reason.item for reason in refusal.value.reasons] == [
        {**there, "n": 1, "map": {"k": [1]}},
        None,
        None,
    ]


@pytest.mark.parametrize("kind", ["update", "delete", "check"])
async def test_every_kind_of_write_may_fail_its_condition(engine: Engine, kind: str) -> None:
    there = await put(engine, n=1)
    writes: dict[str, Write] = {
        "update": Update(PLAIN, there, (F("n").add(1),), condition=F("n") == 2),
        "delete": Delete(PLAIN, there, condition=F("n") == 2),
        "check": Check(PLAIN, there, F("n") == 2),
    }
    with pytest.raises(TransactionCancelled) as refusal:
        await engine.transact(Transaction((writes[kind],)))
    (reason,) = refusal.value.reasons
    assert (reason.code, reason.item) == ("ConditionalCheckFailed", {**there, "n": 1})


async def test_an_update_that_is_invalid_for_its_item_cancels_with_a_reason(engine: Engine) -> None:
    there, new = await put(engine, word="seven"), {"id": fresh()}
    writes = (Put(PLAIN, new), Update(PLAIN, there, (F("word").set(F("word") + 1),)))
    with pytest.raises(TransactionCancelled) as refusal:
        await engine.transact(Transaction(writes))
    assert codes(refusal) == ["None", "ValidationError"]
    assert refusal.value.reasons[1].message
    assert await stored(engine, PLAIN, new) is None


async def test_an_update_that_makes_its_item_too_large_cancels_with_a_reason(
    engine: Engine,
) -> None:
    there = await put(engine, text="x" * 300_000)
    with pytest.raises(TransactionCancelled) as refusal:
        await engine.transact(Transaction((Update(PLAIN, there, (F("more").set("y" * 110_000),)),)))
    assert codes(refusal) == ["ValidationError"]


async def test_a_put_that_is_too_large_is_rejected_before_the_transaction_begins(
    engine: Engine,
) -> None:
    with pytest.raises(ItemTooLarge, match="bytes"):
        await engine.transact(Transaction((Put(PLAIN, {"id": fresh(), "text": "x" * 409_600}),)))


async def test_100_writes_are_one_transaction(engine: Engine) -> None:
    items = [{"id": fresh(), "n": number} for number in range(100)]
    await engine.transact(Transaction(tuple(Put(PLAIN, item) for item in items)))
    found = await engine.transact_get(
        TransactionGet(tuple(Get(PLAIN, {"id": item["id"]}) for item in items))
    )
    assert found.items == items


async def test_10_writes_are_one_transaction(engine: Engine) -> None:
    items = [{"id": fresh(), "n": number} for number in range(10)]
    await engine.transact(Transaction(tuple(Put(PLAIN, item) for item in items)))
    found = await engine.transact_get(
        TransactionGet(tuple(Get(PLAIN, {"id": item["id"]}) for item in items))
    )
    assert found.items == items


async def test_more_than_100_parts_are_rejected(engine: Engine) -> None:
    with pytest.raises(TooManyItems, match="at most 100 items, not 101"):
        await engine.transact(Transaction(tuple(Put(PLAIN, {"id": fresh()}) for _ in range(101))))
    with pytest.raises(TooManyItems, match="at most 100 items, not 101"):
        await engine.transact_get(
            TransactionGet(tuple(Get(PLAIN, {"id": fresh()}) for _ in range(101)))
        )


async def test_more_than_4_mb_are_rejected(engine: Engine) -> None:
    writes = tuple(Put(PLAIN, {"id": fresh(), "text": "x" * 400_000}) for _ in range(11))
    with pytest.raises(RequestTooLarge, match="the limit is 4194304"):
        await engine.transact(Transaction(writes))


async def test_an_empty_transaction_is_rejected(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        await engine.transact(Transaction(()))
    with pytest.raises(InvalidRequest, match="empty"):
        await engine.transact_get(TransactionGet(()))


async def test_a_transaction_that_names_an_item_twice_is_rejected(engine: Engine) -> None:
    key = {"id": fresh()}
    for second in (
        Put(PLAIN, key),
        Delete(PLAIN, key),
        Update(PLAIN, key, (F("n").set(1),)),
        Check(PLAIN, key, not_exists("id")),
    ):
        with pytest.raises(DuplicateItem, match="twice"):
            await engine.transact(Transaction((Put(PLAIN, {**key, "n": 1}), second)))
    with pytest.raises(DuplicateItem, match="twice"):
        await engine.transact_get(TransactionGet((Get(PLAIN, key), Get(PLAIN, dict(key)))))
    assert await stored(engine, PLAIN, key) is None


async def test_an_update_in_a_transaction_has_an_action(engine: Engine) -> None:
    with pytest.raises(InvalidExpression, match="action"):
        await engine.transact(Transaction((Update(PLAIN, {"id": fresh()}, ()),)))


async def test_one_key_in_two_tables_is_no_duplicate(engine: Engine) -> None:
    name = fresh()
    await engine.transact(
        Transaction((Put(PLAIN, {"id": name}), Put(STRINGS, {"id": name, "at": name})))
    )
    assert await stored(engine, PLAIN, {"id": name}) == {"id": name}


@pytest.mark.parametrize(
    ("write", "kind", "words"),
    [
        (Put(PLAIN, {"n": 1}), InvalidKey, "id is missing"),
        (Put(PLAIN, {"id": "x"}, returns="ALL_OLD"), InvalidRequest, "cannot return an item"),
        (Update(PLAIN, {"id": "x"}, (F("id").set("y"),)), InvalidExpression, "part of the key"),
        (
            Update(PLAIN, {"id": "x"}, (F("a").set(1),), condition=F("a") == F("a")),
            InvalidExpression,
            "itself",
        ),
        (Delete(PLAIN, {"id": 1}), InvalidKey, "type S, not N"),
        (
            Check(PLAIN, {"id": "x", "n": 1}, not_exists("a")),
            InvalidKey,
            "n is not part of the key",
        ),
        (Get(PLAIN, {"id": "x"}), InvalidRequest, "Put, Update, Delete and Check, not Get"),
    ],
)
async def test_one_invalid_write_rejects_the_whole_transaction(
    engine: Engine, write: Any, kind: type[InvalidRequest], words: str
) -> None:
    good = {"id": fresh()}
    with pytest.raises(kind, match=words):
        await engine.transact(Transaction((Put(PLAIN, good), write)))
    assert await stored(engine, PLAIN, good) is None


async def test_a_repeated_token_has_no_effect(engine: Engine) -> None:
    key, token = await put(engine, n=0), fresh()
    once = Transaction((Update(PLAIN, key, (F("n").add(1),)),), token)
    await engine.transact(once)
    await engine.transact(once)
    await engine.transact(Transaction((Update(PLAIN, key, (F("n").add(1),)),), token))
    assert await stored(engine, PLAIN, key) == {**key, "n": 1}


async def test_a_repeated_token_succeeds_even_if_the_condition_is_now_false(
    engine: Engine,
) -> None:
    key, token = {"id": fresh()}, fresh()
    create = Transaction((Put(PLAIN, key, condition=not_exists("id")),), token)
    await engine.transact(create)
    await engine.transact(create)
    with pytest.raises(TransactionCancelled):
        await engine.transact(Transaction(create.writes, fresh()))


async def test_a_token_of_a_different_transaction_is_rejected(engine: Engine) -> None:
    key, token = await put(engine, n=0), fresh()
    await engine.transact(Transaction((Update(PLAIN, key, (F("n").add(1),)),), token))
    with pytest.raises(TokenMismatch, match=r"token|[Pp]arameter"):
        await engine.transact(Transaction((Update(PLAIN, key, (F("n").add(2),)),), token))
    assert await stored(engine, PLAIN, key) == {**key, "n": 1}


async def test_a_cancelled_transaction_does_not_consume_its_token(engine: Engine) -> None:
    key, token = await put(engine, n=0), fresh()
    attempt = Transaction((Update(PLAIN, key, (F("m").add(1),), condition=F("n") == 1),), token)
    with pytest.raises(TransactionCancelled):
        await engine.transact(attempt)
    await engine.update(Update(PLAIN, key, (F("n").set(1),)))
    await engine.transact(attempt)
    assert await stored(engine, PLAIN, key) == {**key, "n": 1, "m": 1}


@pytest.mark.parametrize("token", ["", "x" * 37, 5])
async def test_a_token_has_1_to_36_characters(engine: Engine, token: Any) -> None:
    with pytest.raises(InvalidRequest, match="token must have 1 to 36"):
        await engine.transact(Transaction((Put(PLAIN, {"id": fresh()}),), token))


async def test_a_transaction_reads_items_in_the_order_of_its_gets(engine: Engine) -> None:
    one, two = await put(engine, n=1, m=1), await put(engine, n=2)
    gets = (Get(PLAIN, two), Get(PLAIN, {"id": fresh()}), Get(PLAIN, one, (make_path("n"),)))
    found = await engine.transact_get(TransactionGet(gets))
    assert found.items == [{**two, "n": 2}, None, {"n": 1}]


async def test_a_read_transaction_never_sees_a_partial_write_transaction(
    engine: Engine,
) -> None:
    one, two = await put(engine, n=0), await put(engine, n=0)

    async def write() -> None:
        for _ in range(15):
            add = (F("n").add(1),)
            await engine.transact(Transaction((Update(PLAIN, one, add), Update(PLAIN, two, add))))

    async def read() -> list[Any]:
        pairs = []
        for _ in range(15):
            found = await engine.transact_get(TransactionGet((Get(PLAIN, one), Get(PLAIN, two))))
            pairs.append([item and item["n"] for item in found.items])
        return pairs

    _, pairs = await asyncio.gather(write(), read())
    assert all(left == right for left, right in pairs)
    assert await stored(engine, PLAIN, one) == {**one, "n": 15}


async def test_concurrent_conditional_transactions_are_serialized(engine: Engine) -> None:
    """Ten concurrent transactions move one unit each between two items; the total is constant."""
    source, target = await put(engine, n=6), await put(engine, n=0)

    async def move() -> bool:
        take = Update(PLAIN, source, (F("n").add(-1),), condition=F("n") > 0)
        give = Update(PLAIN, target, (F("n").add(1),))
        for _ in range(100):
            try:
                await engine.transact(Transaction((take, give)))
            except TransactionCancelled as refusal:
                if any(reason.condition_failed for reason in refusal.reasons):
                    return False
                continue
            return True
        raise AssertionError("never got through")

    assert sorted(await asyncio.gather(*(move() for _ in range(10)))) == [False] * 4 + [True] * 6
    assert await stored(engine, PLAIN, source) == {**source, "n": 0}
    assert await stored(engine, PLAIN, target) == {**target, "n": 6}


async def test_a_transaction_on_an_unknown_table_is_rejected(engine: Engine) -> None:
    good = {"id": fresh()}
    with pytest.raises(TableNotFound, match=r"never-made|not found|non-existent"):
        await engine.transact(Transaction((Put(PLAIN, good), Put(NEVER_MADE, {"id": "x"}))))
    with pytest.raises(TableNotFound, match=r"never-made|not found|non-existent"):
        await engine.transact_get(TransactionGet((Get(PLAIN, good), Get(NEVER_MADE, {"id": "x"}))))
    assert await stored(engine, PLAIN, good) is None


async def test_a_query_returns_what_a_transaction_wrote(engine: Engine) -> None:
    partition = fresh()
    writes = tuple(Put(STRINGS, {"id": partition, "at": at}) for at in ("b", "a"))
    await engine.transact(Transaction(writes))
    page = await engine.query(Query(STRINGS, F("id") == partition, consistent=True))
    assert [item["at"] for item in page.items] == ["a", "b"]


@pytest.mark.parametrize(("size", "count"), [(400_000, 10), (400_000, 11)])
async def test_a_transaction_reads_up_to_4_mb(engine: Engine, size: int, count: int) -> None:
    keys = [await put(engine, pad="x" * size) for _ in range(count)]
    gets = TransactionGet(tuple(Get(PLAIN, key, (make_path("id"),)) for key in keys))
    if size * count < MAX_TRANSACTION_BYTES:
        assert (await engine.transact_get(gets)).items == keys
    else:
        with pytest.raises(RequestTooLarge, match=r"4194304|4 MB"):
            await engine.transact_get(gets)
