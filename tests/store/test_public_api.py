"""`from tally.store import …` is sufficient for a program, and every public name is documented."""

import inspect
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tally.store
from tally.store import (
    KEYS_ONLY,
    Attribute,
    Check,
    ConditionCheck,
    ConditionFailed,
    F,
    GetItem,
    GlobalIndex,
    Item,
    Put,
    PutItem,
    Query,
    S,
    Store,
    Table,
    TransactionCancelled,
    TransactWriteItems,
    Update,
    UpdateItem,
    access,
    exists,
    not_exists,
    open_sqlite,
    param,
)

PAGE = Path(__file__).parent.parent.parent / "docs" / "store.md"

ORDERS = Table(
    "orders",
    partition=S("customerId"),
    sort=S("orderId"),
    indexes=(GlobalIndex("status-index", partition=S("status"), projection=KEYS_ONLY),),
    attributes=(Attribute("status", "S", required=True),),
)


ORDER_KEY = {"customerId": param("customerId"), "orderId": param("orderId")}


@dataclass(frozen=True, slots=True)
class Orders:
    """A repository that uses nothing but the public API."""

    store: Store

    @access(
        "Place order",
        PutItem(key=ORDER_KEY, condition=not_exists("customerId")),
        table=ORDERS,
    )
    async def place(self, customer_id: str, order_id: str) -> bool:
        item = {"customerId": customer_id, "orderId": order_id, "status": "open", "total": 0}
        try:
            await self.store.put(ORDERS, item, condition=not_exists("customerId"))
        except ConditionFailed:
            return False
        return True

    @access("Get order", GetItem(key=ORDER_KEY), table=ORDERS)
    async def get(self, customer_id: str, order_id: str) -> Item | None:
        return await self.store.get(ORDERS, {"customerId": customer_id, "orderId": order_id})

    @access(
        "List open orders",
        Query(where=F("status") == "open", index="status-index"),
        table=ORDERS,
        bound=100,
    )
    async def list_open(self) -> list[str]:
        orders = self.store.items(ORDERS, F("status") == "open", index="status-index")
        return [order["orderId"] async for order in orders]

    @access(
        "Move an order",
        TransactWriteItems(
            UpdateItem(key=ORDER_KEY, condition=exists("customerId")),
            PutItem(key=ORDER_KEY, condition=not_exists("customerId")),
            ConditionCheck(key=ORDER_KEY, condition=exists("customerId")),
        ),
        table=ORDERS,
    )
    async def move(self, source: str, target: str, order_id: str) -> None:
        old, new = ({"customerId": name, "orderId": order_id} for name in (source, target))
        await self.store.transact(
            [
                Update(ORDERS, old, (F("status").set("moved"),), exists("customerId")),
                Put(ORDERS, {**new, "status": "open"}, not_exists("customerId")),
                Check(ORDERS, {"customerId": target, "orderId": "first"}, exists("customerId")),
            ]
        )


@pytest.fixture
async def orders(tmp_path: Path) -> AsyncIterator[Orders]:
    async with open_sqlite(tmp_path) as engine:
        await engine.ensure_table(ORDERS)
        yield Orders(Store(engine))


async def test_a_conditional_put_creates_an_item_once(orders: Orders) -> None:
    assert await orders.place("ann", "1")
    assert not await orders.place("ann", "1")
    assert await orders.get("ann", "1") == {
        "customerId": "ann",
        "orderId": "1",
        "status": "open",
        "total": 0,
    }


async def test_a_query_reads_an_index(orders: Orders) -> None:
    for order_id in ("1", "2"):
        await orders.place("ann", order_id)
    assert await orders.list_open() == ["1", "2"]


async def test_a_transaction_applies_all_writes_or_none(orders: Orders) -> None:
    await orders.place("ann", "1")
    with pytest.raises(TransactionCancelled) as cancelled:
        await orders.move("ann", "bob", "1")
    assert [reason.condition_failed for reason in cancelled.value.reasons] == [False, False, True]
    await orders.place("bob", "first")
    await orders.move("ann", "bob", "1")
    assert sorted(await orders.list_open()) == ["1", "first"]


def test_every_public_name_exists_once_and_is_documented() -> None:
    """Classes and functions have a docstring; docs/store.md lists every name."""
    names = tally.store.__all__
    assert len(set(names)) == len(names)
    page = PAGE.read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page[: page.index("## Declare a table")]))
    assert listed >= set(names)
    for name in names:
        public = getattr(tally.store, name)
        if inspect.isclass(public) or inspect.isfunction(public):
            assert public.__module__.startswith("tally.store"), name
            assert public.__doc__, f"{name} has no docstring"


def test_importing_the_store_does_not_import_the_aws_client() -> None:
    """AWS's client takes a second to import; `open_dynamodb` imports it on first use."""
    command = "import sys, tally.store; print('botocore' in sys.modules, 'aiohttp' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False", "False"]
