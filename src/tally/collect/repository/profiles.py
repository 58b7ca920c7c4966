"""Items `PROFILE`, and deletion of a user's partition."""

from tally.collect.model.records import Profile
from tally.collect.repository.table import COMMIT_COLLECT, PROFILE, item_key, user_pk
from tally.store.access import BatchWriteItem, DeleteItem, GetItem, PutItem, Query, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.store import Store
from tally.store.values import Item

# The number of items that one call deletes.
DELETE_BATCH_SIZE = 500


class Profiles:
    """Access patterns of profiles."""

    __slots__ = ()
    store: Store

    @access(
        "Get profile",
        GetItem,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=PROFILE",
        by="user",
        trigger="GET /me",
        frequency="Per request",
    )
    async def profile(self, user_id: str) -> Profile | None:
        item = await self.store.get(COMMIT_COLLECT, item_key(user_pk(user_id), PROFILE))
        return (
            None
            if item is None
            else Profile(item["userId"], item.get("email"), item["plan"], item["createdAtUtc"])
        )

    @access(
        "Create profile at first login",
        PutItem.conditional,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=PROFILE with attribute_not_exists(PK)",
        by="user",
        trigger="GET /auth/callback",
        frequency="Per login",
    )
    async def create_profile(self, profile: Profile) -> bool:
        """Create a profile. Return False if it exists, which leaves it unchanged."""
        item: Item = item_key(user_pk(profile.user_id), PROFILE) | {
            "userId": profile.user_id,
            "plan": profile.plan,
            "createdAtUtc": profile.created_at,
        }
        if profile.email is not None:
            item["email"] = profile.email
        try:
            await self.store.put(COMMIT_COLLECT, item, condition=not_exists("PK"))
        except ConditionFailed:
            return False
        return True

    @access(
        "Delete profile",
        DeleteItem,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=PROFILE",
        by="user",
        trigger="DELETE /account",
        frequency="Rare",
    )
    async def delete_profile(self, user_id: str) -> None:
        """Delete the profile. Writes for the user fail from then on."""
        await self.store.delete(COMMIT_COLLECT, item_key(user_pk(user_id), PROFILE))

    @access(
        "Delete a user's items",
        Query + BatchWriteItem,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, keys only; deletes in batches of 25",
        by="user",
        trigger="DELETE /account",
        frequency="Rare",
        bound=DELETE_BATCH_SIZE,
    )
    async def delete_items(self, user_id: str) -> int:
        """Delete up to 500 items of a user; return how many were found."""
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
        ]
        await self.store.write_many(COMMIT_COLLECT, deletes=keys)
        return len(keys)
