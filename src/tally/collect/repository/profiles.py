"""Items `PROFILE`, and deletion of a user's partition."""

from collections.abc import Collection

from tally.collect.model.records import Profile
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    CONNECTION,
    PROFILE,
    deletion_key,
    item_key,
    transact_if_met,
    user_pk,
)
from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    ConditionCheck,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Check, Put
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item

# The number of items that one call deletes.
DELETE_BATCH_SIZE = 500
MAX_STREAM_USERS = 100_000
_EPOCH = ("PK", "sessionEpoch")


_KEY = item_key(user_pk(param("userId")), PROFILE)


class Profiles:
    """Access patterns of profiles."""

    __slots__ = ()
    store: Store

    @access(
        "Get profile",
        GetItem(key=_KEY),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /me",
        frequency="Per request",
    )
    async def profile(self, user_id: str) -> Profile | None:
        item = await self.store.get(
            COMMIT_COLLECT, item_key(user_pk(user_id), PROFILE), consistent=True
        )
        if item is None:
            return None
        return Profile(
            item["userId"],
            item.get("email"),
            item["plan"],
            item["createdAtUtc"],
            item.get("sessionEpoch", ""),
        )

    @access(
        "Create profile at first login",
        TransactWriteItems(
            PutItem(key=_KEY, condition=not_exists("PK")),
            ConditionCheck(key=deletion_key(param("userId")), condition=not_exists("PK")),
        ),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /auth/callback",
        frequency="Per new user",
    )
    async def create_profile(self, profile: Profile) -> bool:
        """Create a profile. Return False if it exists, or the user's deletion is in progress."""
        item: Item = item_key(user_pk(profile.user_id), PROFILE) | {
            "userId": profile.user_id,
            "plan": profile.plan,
            "createdAtUtc": profile.created_at,
            "workoutsIndexed": True,  # there are none yet
        }
        if profile.email is not None:
            item["email"] = profile.email
        if profile.session_epoch:
            item["sessionEpoch"] = profile.session_epoch
        writes = (
            Put(COMMIT_COLLECT, item, condition=not_exists("PK")),
            Check(COMMIT_COLLECT, deletion_key(profile.user_id), not_exists("PK")),
        )
        return await transact_if_met(self.store, writes)

    @access(
        "Get session epoch",
        GetItem(key=_KEY, project=_EPOCH),
        table=COMMIT_COLLECT,
        by="user",
        trigger="Every request with a cookie",
        frequency="Per request",
    )
    async def session_epoch(self, user_id: str) -> str | None:
        """Return the epoch that sessions must have; None if there is no account."""
        key = item_key(user_pk(user_id), PROFILE)
        item = await self.store.get(COMMIT_COLLECT, key, project=_EPOCH, consistent=True)
        return None if item is None else str(item.get("sessionEpoch", ""))

    @access(
        "Get session epochs",
        BatchGetItem(key=_KEY, project=("userId", "sessionEpoch")),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job streams: users with open streams",
        frequency="Every 2 s per instance with streams",
        bound=MAX_STREAM_USERS,
    )
    async def session_epochs(self, user_ids: Collection[str]) -> dict[str, str]:
        """Return the epochs that the sessions of these users must have, by user."""
        found = await self.store.get_many(
            COMMIT_COLLECT,
            [item_key(user_pk(user_id), PROFILE) for user_id in user_ids],
            project=("userId", "sessionEpoch"),
            consistent=True,
        )
        return {str(item["userId"]): str(item.get("sessionEpoch", "")) for item in found}

    @access(
        "End all sessions",
        UpdateItem(key=_KEY, condition=exists("PK")),
        table=COMMIT_COLLECT,
        by="user",
        trigger="DELETE /sessions",
        frequency="Rare",
    )
    async def set_session_epoch(self, user_id: str, epoch: str) -> None:
        """Make all sessions of former epochs invalid, unless the account is gone."""
        try:
            await self.store.update(
                COMMIT_COLLECT,
                item_key(user_pk(user_id), PROFILE),
                F("sessionEpoch").set(epoch),
                condition=exists("PK"),
            )
        except ConditionFailed:
            return

    @access(
        "Delete a user's items",
        Query(where=F("PK") == user_pk(param("userId")), project=("PK", "SK"))
        + BatchWriteItem(key=item_key(user_pk(param("userId")), param("SK"))),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Job collect-deletions",
        frequency="Per 500 items of a deleted account",
        bound=DELETE_BATCH_SIZE,
    )
    async def delete_items(self, user_id: str, *, keeps_connection: bool) -> int:
        """Delete up to 500 items of a user; return how many.

        `keeps_connection` leaves the Strava connection, whose tokens are still needed.
        """
        is_own = F("PK") == user_pk(user_id)
        keys = [
            COMMIT_COLLECT.primary_key(item)
            async for item in self.store.items(
                COMMIT_COLLECT,
                is_own,
                project=("PK", "SK"),
                consistent=True,
                bound=DELETE_BATCH_SIZE,
                overflow="stop",
            )
            if not (keeps_connection and item["SK"] == CONNECTION)
        ]
        await self.store.write_many(COMMIT_COLLECT, deletes=keys)
        return len(keys)
