"""A transaction has the parts that its pattern declares, as often as it declares them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tally.store.access import (
    ConditionCheck,
    PutItem,
    TransactWriteItems,
    UpdateItem,
    access,
    access_pattern,
    param,
)
from tally.store.api import BatchPut, Check, Put, Transaction, TransactionBatch, Update
from tally.store.errors import AccessViolation, StoreError
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import S, Table
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tally.store.values import Item

ACCOUNTS = Table("part-accounts", partition=S("PK"), sort=S("SK"))


def account_key(user_id: str) -> Item:
    return {"PK": f"USER#{user_id}", "SK": "ACCOUNT"}


def entry_key(user_id: str, time: str) -> Item:
    return {"PK": f"USER#{user_id}", "SK": f"ENTRY#{time}"}


KEY = account_key(param("userId"))
ENTRY_KEY = entry_key(param("userId"), param("time"))
ENTRIES = [Put(ACCOUNTS, entry_key("ann", time), not_exists("PK")) for time in "123"]
CHANGE = Update(ACCOUNTS, account_key("ann"), (F("balance").add(1),), exists("PK"))


@dataclass(frozen=True)
class Entries:
    store: Store

    @access("Put account", PutItem(key=KEY), table=ACCOUNTS)
    async def put(self, item: Item) -> None:
        await self.store.put(ACCOUNTS, item)

    @access(
        "Transfer",
        TransactWriteItems(
            PutItem(key=ENTRY_KEY, condition=not_exists("PK")),
            UpdateItem(key=account_key("ann"), condition=exists("PK")),
            ConditionCheck(key=KEY, condition=exists("PK")),
        ),
        table=ACCOUNTS,
    )
    async def transfer(self, *writes: Put | Update | Check) -> None:
        await self.store.transact(writes)

    @access(
        "Record entries",
        TransactWriteItems(
            PutItem(key=ENTRY_KEY, condition=not_exists("PK"), requests=2).optional(),
            UpdateItem(key=KEY, condition=exists("PK")),
        ),
        table=ACCOUNTS,
    )
    async def record(self, *writes: Put | Update) -> None:
        await self.store.transact(writes)

    @access(
        "Record entries apart",
        TransactWriteItems(
            PutItem(key=ENTRY_KEY, condition=not_exists("PK")),
            UpdateItem(key=KEY, condition=exists("PK")),
        ),
        table=ACCOUNTS,
        bound=10,
    )
    async def record_each(self, transactions: Sequence[Transaction]) -> list[StoreError | None]:
        return await self.store.transact_each(transactions)


@pytest.fixture
async def entries(tmp_path: Path) -> AsyncIterator[Entries]:
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(ACCOUNTS)
        repository = Entries(Store(engine))
        for user_id in ("ann", "bob"):
            await repository.put(account_key(user_id))
        yield repository


async def test_a_transaction_has_each_part_as_often_as_declared(entries: Entries) -> None:
    """Otherwise a method could omit the check that its pattern documents."""
    check = Check(ACCOUNTS, account_key("bob"), exists("PK"))
    first, second, third = ENTRIES
    for wrong, problem in (
        ((first, CHANGE), "lacks the ConditionCheck in part-accounts: PK = USER"),
        ((CHANGE, check), "lacks the PutItem in part-accounts: .* attribute_not_exists"),
        ((first, second, CHANGE, check), "at most 1 PutItem in part-accounts, not 2"),
    ):
        with pytest.raises(AccessViolation, match=problem):
            await entries.transfer(*wrong)
    await entries.transfer(check, CHANGE, first)
    await entries.record(CHANGE)
    with pytest.raises(AccessViolation, match="at most 2 PutItem"):
        await entries.record(CHANGE, *ENTRIES)
    with pytest.raises(AccessViolation, match="lacks the UpdateItem"):
        await entries.record(second)
    await entries.record(second, CHANGE, third)


async def test_each_transaction_of_several_has_all_parts(entries: Entries) -> None:
    first, second, _ = ENTRIES
    assert await entries.record_each([Transaction((first, CHANGE))]) == [None]
    with pytest.raises(AccessViolation, match="lacks the UpdateItem"):
        await entries.record_each([Transaction((second, CHANGE)), Transaction((second,))])
    batch = BatchPut(ACCOUNTS, [second.item], {}, not_exists("PK"))
    with pytest.raises(AccessViolation, match="lacks the UpdateItem"):
        await entries.record_each(TransactionBatch(batch))


def test_a_part_that_is_optional_or_repeated_is_documented() -> None:
    entry = PutItem(key=ENTRY_KEY, requests=2).optional()

    @access("Documented", TransactWriteItems(entry), table=ACCOUNTS)
    async def method() -> None: ...

    pattern = access_pattern(method)
    assert pattern is not None
    assert pattern.key_condition.startswith("PutItem (optional, up to 2) PK = USER#{userId}")
