"""Many independent transactions on every engine: validated first, with one outcome each."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tally.store.api import Engine, Put, Transaction, TransactionResult, Update, Write
from tally.store.errors import InvalidKey, StoreError, TransactionCancelled
from tally.store.expressions import F, exists, not_exists
from tests.store.tables import PLAIN, STRINGS, TOKENS, fresh, stored

NEW = not_exists("id")


def once(name: str, **attributes: Any) -> Transaction:
    """Put an item into two tables if it is new in the first."""
    return Transaction(
        (
            Put(PLAIN, {"id": name, **attributes}, condition=NEW),
            Put(STRINGS, {"id": name, "at": "x"}),
        )
    )


def was_done(outcome: TransactionResult | StoreError) -> bool:
    return isinstance(outcome, TransactionResult)


async def test_each_transaction_is_applied(engine: Engine) -> None:
    names = [fresh() for _ in range(30)]
    outcomes = await engine.transact_each(
        [once(name, n=number) for number, name in enumerate(names)]
    )
    assert [was_done(outcome) for outcome in outcomes] == [True] * 30
    for number, name in enumerate(names):
        assert await stored(engine, PLAIN, {"id": name}) == {"id": name, "n": number}
        assert await stored(engine, STRINGS, {"id": name, "at": "x"}) == {"id": name, "at": "x"}


async def test_a_rejected_transaction_returns_its_reason_and_does_not_affect_others(
    engine: Engine,
) -> None:
    there, new, also_new = fresh(), fresh(), fresh()
    await engine.put(Put(PLAIN, {"id": there, "n": 1}))
    first, cancelled, last = await engine.transact_each(
        [once(new), once(there, n=2), once(also_new)]
    )
    assert was_done(first)
    assert was_done(last)
    assert isinstance(cancelled, TransactionCancelled)
    assert [reason.code for reason in cancelled.reasons] == ["ConditionalCheckFailed", "None"]
    assert cancelled.reasons[0].item == {"id": there, "n": 1}
    assert await stored(engine, PLAIN, {"id": there}) == {"id": there, "n": 1}
    assert await stored(engine, STRINGS, {"id": there, "at": "x"}) is None
    assert await stored(engine, STRINGS, {"id": also_new, "at": "x"}) is not None


async def test_only_one_of_two_transactions_creates_an_item(engine: Engine) -> None:
    name = fresh()
    outcomes = await engine.transact_each([once(name, n=1), once(name, n=2), once(fresh())])
    assert sorted(was_done(outcome) for outcome in outcomes[:2]) == [False, True]
    winner = 1 if was_done(outcomes[0]) else 2
    assert await stored(engine, PLAIN, {"id": name}) == {"id": name, "n": winner}
    assert was_done(outcomes[2])


@pytest.mark.parametrize(
    "write",
    [
        Update(PLAIN, {"id": "?"}, (F("n").add(1),), condition=exists("id")),
        Put(PLAIN, {"id": "?", "n": 9}, condition=exists("id")),
        Put(TOKENS, {"id": "?", "owner": "ann"}, condition=NEW),
    ],
    ids=["update", "another condition", "a table with an index"],
)
async def test_transactions_of_every_kind_may_be_mixed(engine: Engine, write: Any) -> None:
    """Transactions that run in bulk and those that run individually have the same results."""
    name, there = fresh(), fresh()
    await engine.put(Put(PLAIN, {"id": there, "n": 1}))
    table = write.table
    own: Write = (
        Update(table, {"id": there}, write.actions, write.condition)
        if isinstance(write, Update)
        else Put(table, {**write.item, "id": there}, write.condition)
    )
    outcomes = await engine.transact_each([once(name), Transaction((own,)), once(there)])
    assert [was_done(outcome) for outcome in outcomes] == [True, True, False]
    changed = await stored(engine, table, {"id": there})
    assert changed is not None
    assert changed.get("n", "token") in (2, 9, "token")


async def test_an_invalid_transaction_is_rejected_before_any_is_applied(engine: Engine) -> None:
    name = fresh()
    with pytest.raises(InvalidKey):
        await engine.transact_each([once(name), Transaction((Put(PLAIN, {"id": ""}),))])
    assert await stored(engine, PLAIN, {"id": name}) is None


async def test_no_transactions_do_nothing(engine: Engine) -> None:
    assert await engine.transact_each([]) == []


async def test_concurrent_callers_create_each_item_once(engine: Engine) -> None:
    names = [fresh() for _ in range(10)]
    outcome_lists = await asyncio.gather(
        *(engine.transact_each([once(name, by=caller) for name in names]) for caller in range(5))
    )
    won = Counter(
        name
        for outcomes in outcome_lists
        for name, outcome in zip(names, outcomes, strict=True)
        if was_done(outcome)
    )
    assert won == Counter(names)


async def test_the_cost_is_that_of_the_single_transactions(engine: Engine) -> None:
    alone = await engine.transact(once(fresh(), text="x" * 2000))
    (together,) = await engine.transact_each([once(fresh(), text="x" * 2000)])
    assert isinstance(together, TransactionResult)
    assert together.capacity == alone.capacity
