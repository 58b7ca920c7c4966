"""The table `tally-operators`: accounts of operators, with hashes of their tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.kit.operators import Role
from tally.store.access import (
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Put
from tally.store.errors import ConditionFailed, StoreUnavailable, TransactionCancelled
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

ACCOUNT: Final = "operator"
# Remains when all operators are removed, so that the next start does not create one.
MARKER: Final = {"kind": "marker", "name": "initialized"}
MAX_OPERATORS: Final = 1_000

OPERATORS = Table(
    "tally-operators",
    partition=S("kind"),
    sort=S("name"),
    attributes=(
        Attribute("kind", "S", required=True, about='"operator"; "marker" after the first account'),
        Attribute("name", "S", required=True),
        Attribute("role", "S", about="viewer or operator"),
        Attribute("token_hash", "S", about="SHA-256 of the token, hexadecimal"),
        Attribute("created_at", "S", about="RFC 3339"),
        Attribute("expires_at", "S", about="RFC 3339; absent if the token does not expire"),
        Attribute("last_used_at", "S", about="RFC 3339, updated at most every 5 minutes"),
    ),
)


@dataclass(frozen=True, slots=True)
class OperatorAccount:
    """An operator as stored."""

    name: str
    role: Role
    token_hash: str
    created_at: str
    expires_at: str | None = None
    last_used_at: str | None = None


def _key(name: str) -> Key:
    return {"kind": ACCOUNT, "name": name}


_KEY = _key(param("name"))


@dataclass(frozen=True, slots=True)
class OperatorRepository:
    """Accounts by name."""

    store: Store
    tables: ClassVar = (OPERATORS,)

    @access(
        "Create operator",
        TransactWriteItems(
            PutItem(key=_KEY, condition=not_exists("name")),
            PutItem(key=MARKER, condition=(not_exists("name"), None)),
        ),
        table=OPERATORS,
        by="user",
        trigger="tally operator add",
        frequency="Rare",
    )
    async def create(self, account: OperatorAccount, *, only_first: bool = False) -> bool:
        """Return False if the name is taken or, with `only_first`, there ever was an operator."""
        writes = (
            Put(OPERATORS, _item(account), condition=not_exists("name")),
            Put(OPERATORS, MARKER, condition=not_exists("name") if only_first else None),
        )
        try:
            await self.store.transact(writes)
        except TransactionCancelled as error:
            if not any(reason.condition_failed for reason in error.reasons):
                raise StoreUnavailable(str(error)) from error
            return False
        return True

    @access(
        "Check for the first start",
        GetItem(key=MARKER),
        table=OPERATORS,
        by="system",
        trigger="tally up, tally serve",
        frequency="At start",
    )
    async def is_initialized(self) -> bool:
        return await self.store.get(OPERATORS, MARKER, consistent=True) is not None

    @access(
        "Get operator",
        GetItem(key=_KEY),
        table=OPERATORS,
        by="user",
        trigger="Admin routes, console",
        frequency="Per request, cached for seconds",
    )
    async def get(self, name: str) -> OperatorAccount | None:
        item = await self.store.get(OPERATORS, _key(name), consistent=True)
        return None if item is None else _account(item)

    @access(
        "List operators",
        Query(where=F("kind") == ACCOUNT),
        table=OPERATORS,
        by="user",
        trigger="tally operator list",
        frequency="Rare",
        bound=MAX_OPERATORS,
    )
    async def all(self) -> list[OperatorAccount]:
        where = F("kind") == ACCOUNT
        return [_account(item) async for item in self.store.items(OPERATORS, where)]

    @access(
        "Update last use",
        UpdateItem(
            key=_KEY,
            condition=exists("name")
            & (not_exists("last_used_at") | (F("last_used_at") <= param("before"))),
        ),
        table=OPERATORS,
        by="system",
        trigger="Admin routes, console",
        frequency="At most every 5 minutes per operator",
    )
    async def update_last_used(self, name: str, time: str, before: str) -> None:
        """Record the use of an account, unless it was recorded after `before`."""
        is_due = exists("name") & (not_exists("last_used_at") | (F("last_used_at") <= before))
        try:
            await self.store.update(
                OPERATORS, _key(name), F("last_used_at").set(time), condition=is_due
            )
        except ConditionFailed:
            return

    @access(
        "Remove operator",
        DeleteItem(key=_KEY, condition=exists("name")),
        table=OPERATORS,
        by="user",
        trigger="tally operator remove",
        frequency="Rare",
    )
    async def remove(self, name: str) -> bool:
        """Return whether the account existed."""
        try:
            await self.store.delete(OPERATORS, _key(name), condition=exists("name"))
        except ConditionFailed:
            return False
        return True


def _item(account: OperatorAccount) -> Item:
    item: Item = {
        "kind": ACCOUNT,
        "name": account.name,
        "role": account.role.value,
        "token_hash": account.token_hash,
        "created_at": account.created_at,
    }
    if account.expires_at is not None:
        item["expires_at"] = account.expires_at
    return item


def _account(item: Mapping[str, Any]) -> OperatorAccount:
    return OperatorAccount(
        item["name"],
        Role(item["role"]),
        item["token_hash"],
        item["created_at"],
        item.get("expires_at"),
        item.get("last_used_at"),
    )
