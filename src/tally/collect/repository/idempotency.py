"""The table `CommitCollectIdempotency`: claims on events in progress, and events that are done.

A claim has a lease, which expires after a crash. Finished events are kept for seven days. Items
`BUDGET#…` count the calls to Strava that events cause, over all instances.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from tally.collect.model.records import IDEMPOTENCY_TTL_SECONDS
from tally.store.access import DeleteItem, GetItem, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

COMMIT_COLLECT_IDEMPOTENCY = Table(
    "CommitCollectIdempotency",
    partition=S("IdempotencyKey"),
    ttl="expiresAt",
    attributes=(
        Attribute(
            "IdempotencyKey", "S", required=True, about="derived from the content of the event"
        ),
        Attribute("status", "S", required=True, about="claimed, done or budget"),
        Attribute("claimedBy", "S", about="token of the claim"),
        Attribute("leaseUntil", "N", about="epoch seconds; afterwards the claim is free"),
        Attribute("reads", "N", about="budget: calls to Strava reserved in this window"),
        Attribute(
            "expiresAt", "N", required=True, about="epoch seconds, seven days after the last change"
        ),
    ),
)

CLAIMED = "claimed"
DONE = "done"
BUDGET = "budget"
# More than a run reserves for an athlete.
MAX_RESERVED = 100


class Claim(Enum):
    """The result of a claim."""

    MINE = "mine"
    TAKEN = "taken"
    DONE = "done"


def _key(key: str) -> Item:
    return {"IdempotencyKey": key}


_KEY = _key(param("IdempotencyKey"))
_BUDGET_KEY = _key(f"BUDGET#{param('window')}#{param('scope')}")


@dataclass(frozen=True, slots=True)
class IdempotencyRepository:
    """Claims by idempotency key."""

    store: Store
    tables: ClassVar = (COMMIT_COLLECT_IDEMPOTENCY,)

    @access(
        "Claim event",
        UpdateItem(
            key=_KEY,
            condition=not_exists("IdempotencyKey")
            | (F("expiresAt") <= param("now"))
            | ((F("status") == CLAIMED) & (F("leaseUntil") <= param("now"))),
        )
        + GetItem(key=_KEY, project=("status",)).with_note("if the claim fails"),
        table=COMMIT_COLLECT_IDEMPOTENCY,
        by="system",
        trigger="Job collect-inbox",
        frequency="Per event",
    )
    async def claim(self, key: str, token: str, now: int, lease: int) -> Claim:
        is_free = (
            not_exists("IdempotencyKey")
            | (F("expiresAt") <= now)
            | ((F("status") == CLAIMED) & (F("leaseUntil") <= now))
        )
        actions = (
            F("status").set(CLAIMED),
            F("claimedBy").set(token),
            F("leaseUntil").set(now + lease),
            F("expiresAt").set(now + IDEMPOTENCY_TTL_SECONDS),
        )
        try:
            await self.store.update(
                COMMIT_COLLECT_IDEMPOTENCY, _key(key), *actions, condition=is_free
            )
        except ConditionFailed:
            item = await self.store.get(
                COMMIT_COLLECT_IDEMPOTENCY, _key(key), project=("status",), consistent=True
            )
            return Claim.DONE if item is not None and item["status"] == DONE else Claim.TAKEN
        return Claim.MINE

    @access(
        "Finish event",
        UpdateItem(key=_KEY, condition=F("claimedBy") == param("token")),
        table=COMMIT_COLLECT_IDEMPOTENCY,
        by="system",
        trigger="An event that was applied",
        frequency="Per event",
    )
    async def finish(self, key: str, token: str, now: int) -> bool:
        """Mark an event as done. Return False if the claim was lost to another worker."""
        actions = (F("status").set(DONE), F("expiresAt").set(now + IDEMPOTENCY_TTL_SECONDS))
        try:
            await self.store.update(
                COMMIT_COLLECT_IDEMPOTENCY, _key(key), *actions, condition=F("claimedBy") == token
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Reserve calls to Strava",
        UpdateItem(
            key=_BUDGET_KEY,
            condition=not_exists("reads") | (F("reads") <= param("left")),
            requests=MAX_RESERVED,
        )
        + GetItem(key=_BUDGET_KEY, project=("reads",), requests=MAX_RESERVED).with_note(
            "if fewer are left"
        ),
        table=COMMIT_COLLECT_IDEMPOTENCY,
        by="system",
        trigger="Job collect-inbox",
        frequency="Per athlete and run",
    )
    async def reserve(self, key: str, wanted: int, limit: int, expires_at: int) -> int:
        """Reserve up to `wanted` of the calls that a window allows; return how many."""
        item_key, wanted = _key(f"BUDGET#{key}"), min(wanted, limit, MAX_RESERVED)
        while wanted > 0:
            is_left = not_exists("reads") | (F("reads") <= limit - wanted)
            actions = (
                F("reads").add(wanted),
                F("status").set(BUDGET),
                F("expiresAt").set(expires_at),
            )
            try:
                await self.store.update(
                    COMMIT_COLLECT_IDEMPOTENCY, item_key, *actions, condition=is_left
                )
            except ConditionFailed:
                item = await self.store.get(
                    COMMIT_COLLECT_IDEMPOTENCY, item_key, project=("reads",), consistent=True
                )
                left = limit if item is None else limit - int(item["reads"])
                wanted = min(wanted - 1, left)
            else:
                return wanted
        return 0

    @access(
        "Release event",
        DeleteItem(
            key=_KEY, condition=(F("claimedBy") == param("token")) & (F("status") == CLAIMED)
        ),
        table=COMMIT_COLLECT_IDEMPOTENCY,
        by="system",
        trigger="An event that failed",
        frequency="Per failure",
    )
    async def release(self, key: str, token: str) -> None:
        is_own = (F("claimedBy") == token) & (F("status") == CLAIMED)
        try:
            await self.store.delete(COMMIT_COLLECT_IDEMPOTENCY, _key(key), condition=is_own)
        except ConditionFailed:
            return  # the lease expired and another worker has the claim
