"""Items `ACCOUNT#{userId}` of `DELETIONS`: account deletions in progress.

They have a partition of their own, so that finding them needs no Scan. An item is removed when its
last step is done.
"""

from collections.abc import Mapping
from typing import Any

from tally.collect.model.accounts import AccountDeletion, DeletionRetry, DeletionStep
from tally.collect.repository.parked_events import event_keys, events_of_athlete
from tally.collect.repository.table import (
    ACCOUNT_PREFIX,
    COMMIT_COLLECT,
    DELETIONS_PK,
    PROFILE,
    deletion_key,
    item_key,
    transact_if_met,
    user_pk,
)
from tally.store.access import (
    BatchWriteItem,
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Delete, Put
from tally.store.errors import ConditionFailed
from tally.store.expressions import Action, F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item, Key

EVENT_BATCH_SIZE = 500


_KEY = deletion_key(param("userId"))
_IS_CLAIMED = F("claimedBy") == param("token")


class Deletions:
    """Access patterns of account deletions."""

    __slots__ = ()
    store: Store

    @access(
        "Request account deletion",
        TransactWriteItems(
            PutItem(key=_KEY, condition=not_exists("PK")),
            DeleteItem(key=item_key(user_pk(param("userId")), PROFILE), condition=exists("PK")),
        ),
        table=COMMIT_COLLECT,
        by="user",
        trigger="DELETE /account",
        frequency="Rare",
    )
    async def request_deletion(self, deletion: AccountDeletion) -> bool:
        """Store a deletion and delete the profile, which ends all sessions and writes of the user.

        Return False if there is no profile, or a deletion is in progress.
        """
        profile = item_key(user_pk(deletion.user_id), PROFILE)
        writes = (
            Put(COMMIT_COLLECT, _item(deletion), condition=not_exists("PK")),
            Delete(COMMIT_COLLECT, profile, condition=exists("PK")),
        )
        return await transact_if_met(self.store, writes)

    @access(
        "Get account deletion",
        GetItem(key=_KEY),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /auth/callback without a profile, DELETE /account twice",
        frequency="Rare",
    )
    async def deletion(self, user_id: str) -> AccountDeletion | None:
        item = await self.store.get(COMMIT_COLLECT, deletion_key(user_id), consistent=True)
        return None if item is None else _deletion(item)

    @access(
        "List account deletions",
        Query(where=(F("PK") == DELETIONS_PK) & F("SK").begins_with(ACCOUNT_PREFIX)),
        table=COMMIT_COLLECT,
        by="both",
        trigger="Job collect-deletions, GET /admin/deletions",
        frequency="Every second per instance",
    )
    async def deletions(
        self, limit: int, start: Key | None
    ) -> tuple[list[AccountDeletion], Key | None]:
        """Return a page of deletions, and the start key of the next page."""
        where = (F("PK") == DELETIONS_PK) & F("SK").begins_with(ACCOUNT_PREFIX)
        page = await self.store.query(
            COMMIT_COLLECT, where, limit=limit, start=start, consistent=True
        )
        return [_deletion(item) for item in page.items], page.next

    @access(
        "Claim account deletion",
        UpdateItem(
            key=_KEY,
            condition=exists("PK")
            & ((F("notBefore") <= param("now")) & (F("leaseUntil") <= param("now"))),
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-deletions",
        frequency="Per attempt",
    )
    async def claim_deletion(
        self, user_id: str, token: str, now: int, lease: int
    ) -> AccountDeletion | None:
        """Claim a deletion for a run; None if it is done, not due or claimed by another."""
        is_free = (F("notBefore") <= now) & (F("leaseUntil") <= now)
        try:
            item = await self.store.update(
                COMMIT_COLLECT,
                deletion_key(user_id),
                F("claimedBy").set(token),
                F("leaseUntil").set(now + lease),
                condition=exists("PK") & is_free,
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return None if item is None else _deletion(item)

    @access(
        "Record progress of account deletion",
        UpdateItem(key=_KEY, condition=_IS_CLAIMED),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-deletions",
        frequency="Per step, and per 500 deleted items",
    )
    async def record_deletion_progress(
        self, deletion: AccountDeletion, token: str, lease_until: int
    ) -> bool:
        """Store the remaining steps and the refresh token that they need, and renew the lease.

        Return False if the claim was lost.
        """
        actions: list[Action] = [
            F("remainingSteps").set([step.value for step in deletion.remaining]),
            F("leaseUntil").set(lease_until),
        ]
        sealed = F("sealedRefreshToken")
        if DeletionStep.IDENTITY not in deletion.remaining:
            actions.append(sealed.remove())
        elif deletion.encrypted_refresh_token is not None:
            actions.append(sealed.set(deletion.encrypted_refresh_token))
        return await self._update_claimed(deletion.user_id, token, *actions)

    @access(
        "Postpone account deletion",
        UpdateItem(key=_KEY, condition=_IS_CLAIMED),
        table=COMMIT_COLLECT,
        by="system",
        trigger="A step that failed",
        frequency="Per failed attempt",
    )
    async def postpone_deletion(self, user_id: str, token: str, retry: DeletionRetry) -> bool:
        """Schedule the next attempt and release the claim; return False if it was lost."""
        return await self._update_claimed(
            user_id,
            token,
            F("attempts").set(retry.attempts),
            F("notBefore").set(retry.not_before),
            F("lastError").set(retry.last_error or ""),
            F("leaseUntil").set(0),
        )

    @access(
        "Finish account deletion",
        DeleteItem(key=_KEY, condition=_IS_CLAIMED),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-deletions",
        frequency="Per deleted account",
    )
    async def finish_deletion(self, user_id: str, token: str) -> bool:
        """Remove a deletion whose steps are done; return False if the claim was lost."""
        try:
            await self.store.delete(
                COMMIT_COLLECT, deletion_key(user_id), condition=F("claimedBy") == token
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Delete an athlete's events",
        Query(where=events_of_athlete(param("athleteId")), project=("PK", "SK"), requests=2)
        + BatchWriteItem(key=event_keys(param("athleteId"))),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-deletions",
        frequency="Per 500 events of a deleted account",
        bound=2 * EVENT_BATCH_SIZE,
    )
    async def delete_events(self, athlete_id: int) -> int:
        """Delete up to 1,000 waiting and parked events of an athlete; return how many."""
        keys: list[Key] = []
        for where in events_of_athlete(athlete_id):
            page = await self.store.query(
                COMMIT_COLLECT,
                where,
                project=("PK", "SK"),
                limit=EVENT_BATCH_SIZE,
                consistent=True,
            )
            keys += [COMMIT_COLLECT.primary_key(item) for item in page.items]
        await self.store.write_many(COMMIT_COLLECT, deletes=keys)
        return len(keys)

    async def _update_claimed(self, user_id: str, token: str, *actions: Action) -> bool:
        try:
            await self.store.update(
                COMMIT_COLLECT,
                deletion_key(user_id),
                *actions,
                condition=F("claimedBy") == token,
            )
        except ConditionFailed:
            return False
        return True


def _item(deletion: AccountDeletion) -> Item:
    item: Item = deletion_key(deletion.user_id) | {
        "userId": deletion.user_id,
        "createdAtUtc": deletion.requested_at,
        "correlationId": deletion.correlation_id,
        "remainingSteps": [step.value for step in deletion.remaining],
        "attempts": 0,
        "notBefore": 0,
        "leaseUntil": 0,
    }
    if deletion.athlete_id is not None:
        item["athleteId"] = deletion.athlete_id
    if deletion.encrypted_refresh_token is not None:
        item["sealedRefreshToken"] = deletion.encrypted_refresh_token
    return item


def _deletion(item: Mapping[str, Any]) -> AccountDeletion:
    return AccountDeletion(
        user_id=item["userId"],
        requested_at=item["createdAtUtc"],
        correlation_id=item["correlationId"],
        remaining=tuple(DeletionStep(step) for step in item["remainingSteps"]),
        athlete_id=item.get("athleteId"),
        encrypted_refresh_token=item.get("sealedRefreshToken"),
        retry=DeletionRetry(
            int(item["attempts"]), int(item["notBefore"]), item.get("lastError") or None
        ),
    )
