"""The tables `api_keys` and `device_claims`: API keys, and one-time codes to obtain them.

They hold hashes, never the keys and codes themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.devices.model.records import ApiKey, DeviceClaim
from tally.store.access import (
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Put, Update
from tally.store.errors import ConditionFailed, TransactionCancelled
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

ALL_KEYS: Final = "api_keys"

API_KEYS = Table(
    "api_keys",
    partition=S("key_id"),
    indexes=(
        GlobalIndex("api_key_hash_index", partition=S("api_key_hash")),
        GlobalIndex("gsi1", partition=S("gsi1pk"), sort=S("gsi1sk")),
    ),
    attributes=(
        Attribute("key_id", "S", required=True, about="UUID v4"),
        Attribute(
            "api_key_hash",
            "S",
            required=True,
            about="SHA-256 of pepper and key, hexadecimal",
        ),
        Attribute("created_at", "S", required=True, about="RFC 3339"),
        Attribute("last_used_at", "S", about="RFC 3339"),
        Attribute("is_active", "BOOL", required=True, about="false after revocation"),
        Attribute("description", "S", about="set by an operator"),
        Attribute("hardware_ids", "L", about="the boards that may use the key"),
        Attribute("group", "S", about="the group whose boards may use the key"),
        Attribute("key_prefix", "S", about="the first 8 characters of the key"),
        Attribute("gsi1pk", "S", required=True, about='always "api_keys"'),
        Attribute("gsi1sk", "S", required=True, about="equals created_at"),
    ),
)

DEVICE_CLAIMS = Table(
    "device_claims",
    partition=S("code_hash"),
    ttl="expires_at",
    attributes=(
        Attribute("code_hash", "S", required=True, about="SHA-256 of pepper and code, hexadecimal"),
        Attribute("created_at", "S", required=True, about="RFC 3339"),
        Attribute("created_by", "S", required=True, about="name of the operator"),
        Attribute("hardware_id", "S", about="the only board that may use the code"),
        Attribute("description", "S", about="of the API key"),
        Attribute("key_id", "S", about="the API key, once the code is used"),
        Attribute("expires_at", "N", required=True, about="epoch seconds"),
    ),
)

_KEY: Final = {"key_id": param("keyId")}
_IS_VALID = (
    exists("code_hash")
    & not_exists("key_id")
    & (F("expires_at") > param("now"))
    & (not_exists("hardware_id") | (F("hardware_id") == param("hardwareId")))
)


@dataclass(frozen=True, slots=True)
class ApiKeyRepository:
    """API keys by hash and by creation time, and codes by hash."""

    store: Store
    tables: ClassVar = (API_KEYS, DEVICE_CLAIMS)

    @access(
        "Create API key",
        PutItem(key=_KEY, condition=not_exists("key_id")),
        table=API_KEYS,
        by="user",
        trigger="POST /api-keys",
        frequency="Rare",
    )
    async def create(self, key: ApiKey) -> None:
        await self.store.put(API_KEYS, key_item(key), condition=not_exists("key_id"))

    @access(
        "Look up API key by hash",
        Query(where=F("api_key_hash") == param("hash"), index="api_key_hash_index", limit=1),
        table=API_KEYS,
        by="user",
        trigger="POST /register, POST /data",
        frequency="Per request, cached for seconds",
    )
    async def by_hash(self, api_key_hash: str) -> ApiKey | None:
        page = await self.store.query(
            API_KEYS, F("api_key_hash") == api_key_hash, index="api_key_hash_index", limit=1
        )
        return _key(page.items[0]) if page.items else None

    @access(
        "List API keys",
        Query(where=F("gsi1pk") == ALL_KEYS, index="gsi1", forward=False),
        table=API_KEYS,
        by="user",
        trigger="GET /api-keys",
        frequency="Rare",
    )
    async def newest_first(self, limit: int, start: Key | None) -> tuple[list[ApiKey], Key | None]:
        """Return a page of keys and the start key of the next page."""
        page = await self.store.query(
            API_KEYS, F("gsi1pk") == ALL_KEYS, index="gsi1", forward=False, limit=limit, start=start
        )
        return [_key(item) for item in page.items], page.next

    @access(
        "Update last used",
        UpdateItem(
            key=_KEY,
            condition=exists("key_id")
            & (not_exists("last_used_at") | (F("last_used_at") <= param("before"))),
        ),
        table=API_KEYS,
        by="system",
        trigger="POST /register, POST /data",
        frequency="At most every 5 minutes per key",
    )
    async def update_last_used(self, key_id: str, time: str, before: str) -> bool:
        """Record the use of a key, unless it was recorded after `before`."""
        is_due = exists("key_id") & (not_exists("last_used_at") | (F("last_used_at") <= before))
        try:
            await self.store.update(
                API_KEYS, {"key_id": key_id}, F("last_used_at").set(time), condition=is_due
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Revoke API key",
        UpdateItem(key=_KEY, condition=exists("key_id")),
        table=API_KEYS,
        by="user",
        trigger="DELETE /api-keys/{key_id}",
        frequency="Rare",
    )
    async def revoke(self, key_id: str) -> bool:
        """Deactivate a key. Return whether it exists."""
        try:
            await self.store.update(
                API_KEYS, {"key_id": key_id}, F("is_active").set(False), condition=exists("key_id")
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Create claim",
        PutItem(key={"code_hash": param("hash")}, condition=not_exists("code_hash")),
        table=DEVICE_CLAIMS,
        by="user",
        trigger="POST /claims",
        frequency="Per new board",
    )
    async def create_claim(self, claim: DeviceClaim) -> None:
        item: Item = {
            "code_hash": claim.code_hash,
            "created_at": claim.created_at,
            "created_by": claim.created_by,
            "expires_at": claim.expires_at,
        }
        if claim.hardware_id is not None:
            item["hardware_id"] = claim.hardware_id
        if claim.description is not None:
            item["description"] = claim.description
        await self.store.put(DEVICE_CLAIMS, item, condition=not_exists("code_hash"))

    @access(
        "Get claim",
        GetItem(key={"code_hash": param("hash")}),
        table=DEVICE_CLAIMS,
        by="user",
        trigger="POST /claim",
        frequency="Per attempt to use a code",
    )
    async def claim_description(self, code_hash: str) -> str | None:
        """Return the description of a code, None without one or if the code is unknown."""
        item = await self.store.get(DEVICE_CLAIMS, {"code_hash": code_hash}, consistent=True)
        return None if item is None else item.get("description")

    @access(
        "Use claim",
        TransactWriteItems(
            UpdateItem(key={"code_hash": param("hash")}, condition=_IS_VALID),
            PutItem(table=API_KEYS, key=_KEY, condition=not_exists("key_id")),
        ),
        table=DEVICE_CLAIMS,
        tables=(API_KEYS,),
        by="user",
        trigger="POST /claim",
        frequency="Per new board",
        bound=2,
    )
    async def use_claim(self, code_hash: str, hardware_id: str, key: ApiKey, now: int) -> bool:
        """Create the key, if the code is valid for this board and was not used before."""
        is_valid = (
            exists("code_hash")
            & not_exists("key_id")
            & (F("expires_at") > now)
            & (not_exists("hardware_id") | (F("hardware_id") == hardware_id))
        )
        use = Update(
            DEVICE_CLAIMS, {"code_hash": code_hash}, (F("key_id").set(key.key_id),), is_valid
        )
        try:
            await self.store.transact([use, Put(API_KEYS, key_item(key), not_exists("key_id"))])
        except TransactionCancelled as error:
            if error.reasons[0].condition_failed:
                return False
            raise
        return True


def key_item(key: ApiKey) -> Item:
    """Return the item of a new key."""
    item: Item = {
        "key_id": key.key_id,
        "api_key_hash": key.api_key_hash,
        "created_at": key.created_at,
        "is_active": key.is_active,
        "gsi1pk": ALL_KEYS,
        "gsi1sk": key.created_at,
    }
    if key.description is not None:
        item["description"] = key.description
    if key.hardware_ids:
        item["hardware_ids"] = list(key.hardware_ids)
    if key.group is not None:
        item["group"] = key.group
    if key.prefix is not None:
        item["key_prefix"] = key.prefix
    return item


def _key(item: Mapping[str, Any]) -> ApiKey:
    return ApiKey(
        key_id=item["key_id"],
        api_key_hash=item["api_key_hash"],
        created_at=item["created_at"],
        is_active=item["is_active"],
        description=item.get("description"),
        last_used_at=item.get("last_used_at"),
        hardware_ids=tuple(item.get("hardware_ids", ())),
        group=item.get("group"),
        prefix=item.get("key_prefix"),
    )
