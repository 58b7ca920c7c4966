"""A request has the key, condition, filter, projection and attributes that its pattern declares."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    ConditionCheck,
    DeleteItem,
    GetItem,
    PatternOperation,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    access_pattern,
    access_patterns,
    param,
)
from tally.store.api import (
    BatchPut,
    Check,
    ColumnarItems,
    Put,
    TransactionBatch,
    Update,
)
from tally.store.errors import AccessViolation, InvalidValue
from tally.store.expressions import Action, Condition, F, exists, list_append, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.sqlite import SqliteEngine, open_sqlite
from tally.store.store import Store
from tally.store.values import Item, Key

SOURCE = Path(__file__).parent.parent.parent / "src" / "tally"
ACCOUNTS = Table(
    "forms-accounts",
    partition=S("PK"),
    sort=S("SK"),
    attributes=(
        Attribute("PK", "S", required=True),
        Attribute("SK", "S", required=True),
        Attribute("name", "S", required=True),
        Attribute("balance", "N", required=True),
        Attribute("tags", "SS"),
        Attribute("history", "L"),
    ),
)
LEGACY = replace(ACCOUNTS, name="forms-legacy", validated=False)


def user_pk(user_id: str) -> str:
    return f"USER#{user_id}"


def entry_sk(time: int, number: str) -> str:
    return f"ENTRY#{time:012}#{number}"


def account_key(user_id: str, sort: str = "ACCOUNT") -> Item:
    return {"PK": user_pk(user_id), "SK": sort}


KEY = account_key(param("userId"))
ENTRY_KEY = account_key(param("userId"), entry_sk(param("time"), param("number")))
OF_USER = F("PK") == user_pk(param("userId"))


def account(user_id: str, sort: str = "ACCOUNT", **more: Any) -> Item:
    return account_key(user_id, sort) | {"name": "Ann", "balance": 0} | more


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(ACCOUNTS)
        await engine.create_table(LEGACY)
        yield Store(engine)


@dataclass(frozen=True, slots=True)
class Accounts:
    """One pattern per kind of request; each method sends what its arguments say."""

    store: Store

    @access("Get account", GetItem(key=KEY), table=ACCOUNTS)
    async def get(self, *keys: Key, **more: Any) -> list[Item | None]:
        return [await self.store.get(ACCOUNTS, key, **more) for key in keys]

    @access("Get name", GetItem(key=KEY, project=("name",), requests=2), table=ACCOUNTS)
    async def get_name(self, *keys: Key, **more: Any) -> list[Item | None]:
        return [await self.store.get(ACCOUNTS, key, **more) for key in keys]

    @access("Get accounts", BatchGetItem(key=KEY), table=ACCOUNTS, bound=10)
    async def get_many(self, *keys: Key) -> list[Item]:
        return await self.store.get_many(ACCOUNTS, keys)

    @access("Create account", PutItem(key=KEY, condition=not_exists("PK")), table=ACCOUNTS)
    async def create(self, item: Item, condition: Condition | None) -> None:
        await self.store.put(ACCOUNTS, item, condition=condition)

    @access("Put account", PutItem(key=KEY), table=ACCOUNTS)
    async def put(self, item: Item) -> None:
        await self.store.put(ACCOUNTS, item)

    @access("Put legacy account", PutItem(key=KEY), table=LEGACY)
    async def put_legacy(self, item: Item) -> None:
        await self.store.put(LEGACY, item)

    @access("Write entries", BatchWriteItem(key=(KEY, ENTRY_KEY)), table=ACCOUNTS, bound=100)
    async def write(self, **more: Any) -> None:
        await self.store.write_many(ACCOUNTS, **more)

    @access("Change account", UpdateItem(key=KEY, condition=exists("PK")), table=ACCOUNTS)
    async def change(self, *actions: Action) -> None:
        await self.store.update(ACCOUNTS, account_key("ann"), *actions, condition=exists("PK"))

    @access("Upsert account", UpdateItem(key=KEY), table=ACCOUNTS)
    async def upsert(self, *actions: Action) -> None:
        await self.store.update(ACCOUNTS, account_key("ann"), *actions)

    @access(
        "Withdraw",
        UpdateItem(
            key=KEY, condition=(F("balance") >= param("sum"), exists("PK") & not_exists("balance"))
        ),
        table=ACCOUNTS,
    )
    async def withdraw(self, condition: Condition | None) -> None:
        await self.store.update(
            ACCOUNTS, account_key("ann"), F("balance").add(-5), condition=condition
        )

    @access(
        "List entries",
        Query(
            where=OF_USER & F("SK").begins_with("ENTRY#"),
            filter=(F("balance") > param("least"), None),
            forward=False,
            limit=5,
        ),
        table=ACCOUNTS,
        bound=100,
    )
    async def entries(self, where: Condition, **more: Any) -> int:
        return len((await self.store.query(ACCOUNTS, where, **more)).items)

    @access("Walk entries", Query(where=OF_USER & (F("SK") > param("last"))), table=ACCOUNTS)
    async def walk(self) -> int:
        count, last = 0, "A"
        while True:
            where = (F("PK") == user_pk("ann")) & (F("SK") > last)
            for item in (await self.store.query(ACCOUNTS, where, limit=1)).items:
                last = item["SK"]
            count += 1

    @access("Scan through the engine", GetItem(key=KEY), table=ACCOUNTS)
    async def scan(self) -> None:
        await self.store.engine.scan(None)  # type: ignore[attr-defined]

    @access(
        "Transfer",
        TransactWriteItems(
            PutItem(key=ENTRY_KEY, condition=not_exists("PK")),
            UpdateItem(key=KEY, condition=exists("PK")),
            ConditionCheck(key=KEY, condition=exists("PK")),
        ),
        table=ACCOUNTS,
    )
    async def transfer(self, *writes: Put | Update | Check) -> None:
        await self.store.transact(writes)

    @access(
        "Import entries",
        TransactWriteItems(PutItem(key=ENTRY_KEY, condition=not_exists("PK"))),
        table=ACCOUNTS,
        bound=100,
    )
    async def load(self, *puts: BatchPut) -> None:
        await self.store.transact_each(TransactionBatch(*puts))


ENTRIES = (F("PK") == user_pk("ann")) & F("SK").begins_with("ENTRY#")


async def test_a_call_sends_an_operation_once_unless_it_declares_more(store: Store) -> None:
    accounts = Accounts(store)
    with pytest.raises(AccessViolation, match="'Get account': it declares 1 GetItem per call"):
        await accounts.get(*(account_key(f"u{number}") for number in range(3_000)))
    assert store.meters.of(access_patterns(Accounts)["get"]).operations["GetItem", None].calls == 1
    keys = [account_key("ann"), account_key("bob"), account_key("cid")]
    assert await accounts.get_name(*keys[:2], project=["name"]) == [None, None]
    with pytest.raises(AccessViolation, match="it declares 2 GetItem per call"):
        await accounts.get_name(*keys, project=["name"])


async def test_a_page_loop_by_sort_key_ends_at_the_second_request(store: Store) -> None:
    with pytest.raises(AccessViolation, match="'Walk entries': it declares 1 Query per call"):
        await Accounts(store).walk()


@pytest.mark.parametrize(
    ("where", "more", "problem"),
    [
        (ENTRIES, {"filter": F("name") == "Ann"}, "declares the filter balance > :least; or none"),
        (F("PK") == user_pk("ann"), {}, r"begins_with\(SK, ENTRY#\), .*, not PK = USER#ann"),
        (
            (F("PK") == user_pk("ann")) & F("SK").begins_with("A"),
            {},
            r"not PK = USER#ann AND begins_with\(SK, A",
        ),
        ((F("PK") == "ann") & F("SK").begins_with("ENTRY#"), {}, r"PK = USER#\{userId\} .*not PK"),
        (ENTRIES, {"forward": True}, "declares descending order"),
        (ENTRIES, {"limit": 6}, "declares a limit of 5, not 6"),
        (ENTRIES, {"project": ["name"]}, "a projection of all attributes, not name"),
    ],
)
async def test_a_query_has_the_declared_range_filter_order_and_projection(
    store: Store, where: Condition, more: Mapping[str, Any], problem: str
) -> None:
    with pytest.raises(AccessViolation, match=problem):
        await Accounts(store).entries(where, **{"forward": False, "limit": 5, **more})


async def test_a_query_of_the_declared_form_is_sent(store: Store) -> None:
    accounts = Accounts(store)
    await accounts.write(puts=[account("ann", entry_sk(7, "1"), balance=9)])
    assert await accounts.entries(ENTRIES, forward=False, limit=5) == 1
    over = F("balance") > 9
    assert await accounts.entries(ENTRIES, forward=False, limit=1, filter=over) == 0


async def test_the_engine_is_private_to_the_store(store: Store) -> None:
    with pytest.raises(AttributeError, match="no attribute 'engine'"):
        await Accounts(store).scan()
    public = [getattr(store, name) for name in dir(store) if not name.startswith("_")]
    assert not any(isinstance(member, SqliteEngine) for member in public)
    outside = [path for path in SOURCE.rglob("*.py") if SOURCE / "store" not in path.parents]
    reaches_in = re.compile(r"store\._?engine\b")
    assert [path for path in outside if reaches_in.search(path.read_text("utf-8"))] == []


async def test_a_put_has_the_declared_condition(store: Store) -> None:
    accounts = Accounts(store)
    declared = r"declares the condition attribute_not_exists\(PK\), not "
    with pytest.raises(AccessViolation, match=f"{declared}none"):
        await accounts.create(account("ann"), None)
    with pytest.raises(AccessViolation, match=rf"{declared}attribute_exists\(PK\)"):
        await accounts.create(account("ann"), exists("PK"))
    await accounts.create(account("ann"), not_exists("PK"))


async def test_a_condition_has_one_of_the_declared_forms(store: Store) -> None:
    accounts = Accounts(store)
    await accounts.put(account("ann", balance=20))
    await accounts.withdraw(F("balance") >= 5)
    for other in (F("balance") > 5, F("balance") >= F("limit"), F("total") >= 5, exists("PK")):
        with pytest.raises(AccessViolation, match="'Withdraw': its UpdateItem declares"):
            await accounts.withdraw(other)


@pytest.mark.parametrize(
    "key",
    [
        {"PK": "USER#", "SK": "ACCOUNT"},
        {"PK": "ann", "SK": "ACCOUNT"},
        {"PK": "USER#ann", "SK": "ACCOUNTS"},
        {"PK": "USER#ann"},
    ],
)
async def test_a_key_follows_its_template(store: Store, key: Key) -> None:
    """In single requests, batches and transactions."""
    accounts, good = Accounts(store), account_key("ann")
    declared = r"declares PK = USER#\{userId\} AND SK = ACCOUNT, not PK = "
    with pytest.raises(AccessViolation, match=f"GetItem {declared}"):
        await accounts.get(key)
    with pytest.raises(AccessViolation, match=f"PutItem {declared}"):
        await accounts.put({"name": "Ann", "balance": 0, **key})
    with pytest.raises(AccessViolation, match=f"UpdateItem {declared}"):
        await accounts.transfer(Update(ACCOUNTS, key, (F("name").set("Bob"),), exists("PK")))
    if "SK" in key:
        with pytest.raises(AccessViolation, match=f"BatchGetItem {declared}"):
            await accounts.get_many(good, key)
        with pytest.raises(AccessViolation, match="BatchWriteItem declares"):
            await accounts.write(deletes=[good, key])


async def test_a_projection_is_as_declared(store: Store) -> None:
    accounts = Accounts(store)
    with pytest.raises(AccessViolation, match="projection of all attributes, not name"):
        await accounts.get(account_key("ann"), project=["name"])
    with pytest.raises(AccessViolation, match="projection of name, not all attributes"):
        await accounts.get_name(account_key("ann"))


async def test_each_write_of_a_transaction_has_the_form_of_a_part(store: Store) -> None:
    accounts = Accounts(store)
    await accounts.put(account("ann"))
    await accounts.put(account("bob"))
    entry = Put(ACCOUNTS, account("ann", entry_sk(1, "a")), not_exists("PK"))
    change = Update(ACCOUNTS, account_key("ann"), (F("balance").add(1),), exists("PK"))
    check = Check(ACCOUNTS, account_key("bob"), exists("PK"))
    await accounts.transfer(entry, change, check)
    for wrong, problem in (
        (Put(ACCOUNTS, account("ann", entry_sk(2, "a"))), "PutItem declares the condition"),
        (Put(ACCOUNTS, account("ann", "ENTRY#2"), not_exists("PK")), "PutItem declares PK"),
        (Check(ACCOUNTS, account_key("ann"), not_exists("PK")), "ConditionCheck declares"),
    ):
        with pytest.raises(AccessViolation, match=problem):
            await accounts.transfer(wrong)


INVALID_ITEMS: list[tuple[Mapping[str, Any], str]] = [
    ({"name": "Ann"}, "missing required attributes: balance"),
    ({}, "missing required attributes: balance, name"),
    ({"name": "Ann", "balance": "10"}, "the attribute balance is of type N, not S"),
    ({"name": None, "balance": 10}, "the attribute name is of type S, not NULL"),
    ({"name": "Ann", "balance": True}, "the attribute balance is of type N, not BOOL"),
    ({"name": "Ann", "balance": 1, "tags": {1}}, "the attribute tags is of type SS, not NS"),
    ({"name": "Ann", "balance": 1, "tags": ["a"]}, "the attribute tags is of type SS, not L"),
]


@pytest.mark.parametrize(("attributes", "problem"), INVALID_ITEMS)
async def test_an_item_has_the_declared_attributes(
    store: Store, attributes: Mapping[str, Any], problem: str
) -> None:
    """In a put, a batch, a transaction and a batch of transactions."""
    accounts, match = Accounts(store), f"table forms-accounts: {problem}"
    good, bad = account("ann"), account_key("bob") | dict(attributes)
    with pytest.raises(InvalidValue, match=match):
        await accounts.put(bad)
    with pytest.raises(InvalidValue, match=match):
        await accounts.write(puts=[good, bad])
    entry = bad | {"SK": entry_sk(1, "a")}
    change = Update(ACCOUNTS, account_key("ann"), (F("balance").add(1),), exists("PK"))
    check = Check(ACCOUNTS, account_key("cay"), exists("PK"))
    with pytest.raises(InvalidValue, match=match):
        await accounts.transfer(Put(ACCOUNTS, entry, not_exists("PK")), change, check)
    with pytest.raises(InvalidValue, match=match):
        await accounts.load(BatchPut(ACCOUNTS, [entry], {}, not_exists("PK")))
    columns = ColumnarItems({name: [value] for name, value in entry.items()})
    with pytest.raises(InvalidValue, match=match):
        await accounts.load(BatchPut(ACCOUNTS, columns, {}, not_exists("PK")))
    assert await accounts.get(account_key("ann")) == [None]


@pytest.mark.parametrize(("attributes", "problem"), INVALID_ITEMS)
async def test_a_table_with_data_from_elsewhere_is_not_validated(
    store: Store, attributes: Mapping[str, Any], problem: str
) -> None:
    assert problem
    await Accounts(store).put_legacy(account_key("ann") | dict(attributes))


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        (F("name").set(5), "the attribute name is of type S, not N"),
        (F("name").set(F("name").if_not_exists(5)), "the attribute name is of type S, not N"),
        (F("name").set(F("balance") + 1), "the attribute name is of type S, not N"),
        (F("name").set(list_append(["a"], F("history"))), "the attribute name is of type S, not L"),
        (F("name").add(1), "the attribute name is of type S, not N"),
        (F("tags").add({1}), "the attribute tags is of type SS, not NS"),
        (F("balance").remove(), "the required attribute balance cannot be removed"),
    ],
)
async def test_an_update_keeps_the_declared_attributes(
    store: Store, action: Action, problem: str
) -> None:
    with pytest.raises(InvalidValue, match=f"table forms-accounts: {problem}"):
        await Accounts(store).change(action)


async def test_an_update_cannot_empty_a_required_set(tmp_path: Path) -> None:
    """Without elements, the set does not exist; removing elements also creates none."""
    table = Table("forms-teams", partition=S("id"), attributes=(Attribute("users", "SS", True),))

    class Teams:
        @access("Leave team", UpdateItem(key={"id": param("id")}), table=table)
        async def leave(self, store: Store) -> None:
            await store.update(table, {"id": "a"}, F("users").discard({"ann"}))

    async with open_sqlite(tmp_path) as engine:
        await engine.create_table(table)
        with pytest.raises(InvalidValue, match="required attribute users cannot be removed"):
            await Teams().leave(Store(engine))


async def test_an_update_that_may_create_an_item_sets_the_required_attributes(
    store: Store,
) -> None:
    accounts, name, balance = Accounts(store), F("name").set("Ann"), F("balance").add(1)
    with pytest.raises(InvalidValue, match=r"may create an item; missing .*: balance"):
        await accounts.upsert(name)
    await accounts.upsert(name, balance, F("tags").add({"a"}))
    await accounts.change(F("note").set("undeclared"), F("history").set([]), F("tags").remove())
    [found] = await accounts.get(account_key("ann"))
    assert found == account("ann", balance=1, note="undeclared", history=[])


async def test_a_batch_of_transactions_has_the_declared_keys_and_condition(store: Store) -> None:
    accounts, sorts = Accounts(store), [entry_sk(1, "a"), "ENTRY#2"]
    columns: dict[str, list[Any]] = {
        "PK": ["USER#ann"] * 2,
        "SK": sorts,
        "name": ["a", "b"],
        "balance": [1, 2],
    }
    with pytest.raises(
        AccessViolation, match=r"PutItem declares PK = .*, not PK = USER#ann AND SK"
    ):
        await accounts.load(BatchPut(ACCOUNTS, ColumnarItems(columns), {}, not_exists("PK")))
    columns["SK"] = [entry_sk(1, "a"), entry_sk(2, "a")]
    with pytest.raises(AccessViolation, match="PutItem declares the condition"):
        await accounts.load(BatchPut(ACCOUNTS, ColumnarItems(columns)))
    await accounts.load(BatchPut(ACCOUNTS, ColumnarItems(columns), {}, not_exists("PK")))
    assert await accounts.entries(ENTRIES, forward=False, limit=5) == 2
    with pytest.raises(AccessViolation, match="does not declare PutItem in forms-legacy"):
        await accounts.load(BatchPut(LEGACY, ColumnarItems(columns), {}, not_exists("PK")))


@pytest.mark.parametrize(
    ("operation", "key_condition"),
    [
        (GetItem(key=KEY), "PK = USER#{userId} AND SK = ACCOUNT"),
        (GetItem(key=ENTRY_KEY), "PK = USER#{userId} AND SK = ENTRY#{time}#{number}"),
        (
            BatchGetItem(key=({"PK": param("PK"), "SK": "A"}, {"PK": "B", "SK": param("SK")})),
            "PK = :PK AND SK = A; or PK = B AND SK = :SK",
        ),
        (Query(where=OF_USER & (F("SK") >= param("a"))), "PK = USER#{userId} AND SK >= :a"),
        (
            Query(where=OF_USER & F("SK").between(entry_sk(param("from"), "0"), "ENTRY#~")),
            "PK = USER#{userId} AND SK BETWEEN ENTRY#{from}#0 AND ENTRY#~",
        ),
        (Query(where=OF_USER, forward=False, limit=1), "PK = USER#{userId}, descending, Limit 1"),
        (
            Query(where=OF_USER) + DeleteItem(key=KEY),
            "Query: PK = USER#{userId}; DeleteItem: PK = USER#{userId} AND SK = ACCOUNT",
        ),
        (
            TransactWriteItems(ConditionCheck(key=KEY, condition=exists("PK"))),
            "ConditionCheck PK = USER#{userId} AND SK = ACCOUNT with attribute_exists(PK)",
        ),
    ],
)
def test_the_documented_key_condition_is_generated_from_the_template(
    operation: PatternOperation, key_condition: str
) -> None:
    @access("Documented", operation, table=ACCOUNTS)
    async def method() -> None: ...

    pattern = access_pattern(method)
    assert pattern is not None
    assert pattern.key_condition == key_condition


def test_conditions_filters_projections_and_requests_are_documented() -> None:
    is_old = (F("a") < param("now")) | ~F("b").contains("x")
    declared = Query(
        where=OF_USER, filter=F("kind").is_in("a", param("k")), project=("name", F("a", 0))
    ) + UpdateItem(key=KEY, condition=exists("PK") & is_old, requests=1_000)

    @access("Documented", declared, table=ACCOUNTS)
    async def method() -> None: ...

    pattern = access_pattern(method)
    assert pattern is not None
    assert (pattern.filter, pattern.projection) == ("Query: kind IN (a, :k)", "Query: name, a[0]")
    condition = "UpdateItem: attribute_exists(PK) AND (a < :now OR NOT (contains(b, x)))"
    assert (pattern.condition, pattern.requests) == (condition, "UpdateItem: 1,000")
