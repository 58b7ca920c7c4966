"""The table `device_claims`: one-time codes with which boards obtain their own API keys."""

from dataclasses import dataclass
from typing import ClassVar

from tally.devices.model.records import ApiKey, Claim
from tally.devices.repository.keys import API_KEYS, key_item
from tally.store.access import PutItem, TransactWriteItems, UpdateItem, access, param
from tally.store.api import Put, Update
from tally.store.errors import TransactionCancelled
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

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

_IS_VALID = (
    exists("code_hash")
    & not_exists("key_id")
    & (F("expires_at") > param("now"))
    & (not_exists("hardware_id") | (F("hardware_id") == param("hardwareId")))
)


@dataclass(frozen=True, slots=True)
class ClaimRepository:
    """Codes by hash."""

    store: Store
    tables: ClassVar = (DEVICE_CLAIMS,)
    reads: ClassVar = (API_KEYS,)

    @access(
        "Create claim",
        PutItem(key={"code_hash": param("hash")}, condition=not_exists("code_hash")),
        table=DEVICE_CLAIMS,
        by="user",
        trigger="POST /claims",
        frequency="Per new board",
    )
    async def create(self, claim: Claim) -> None:
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
        "Use claim",
        TransactWriteItems(
            UpdateItem(key={"code_hash": param("hash")}, condition=_IS_VALID),
            PutItem(table=API_KEYS, key={"key_id": param("keyId")}, condition=not_exists("key_id")),
        ),
        table=DEVICE_CLAIMS,
        tables=(API_KEYS,),
        by="user",
        trigger="POST /claim",
        frequency="Per new board",
        bound=2,
    )
    async def use(self, code_hash: str, hardware_id: str, key: ApiKey, now: int) -> bool:
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
