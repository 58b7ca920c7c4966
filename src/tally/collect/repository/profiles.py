"""Items `PROFILE`, and a person's whole partition, when it is to go."""

from tally.collect.model import Profile
from tally.collect.repository.table import COMMIT_COLLECT, PROFILE, at, user
from tally.store.access import BatchWriteItem, DeleteItem, GetItem, PutItem, Query, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.store import Store
from tally.store.values import Item

# What one call removes; whoever wants all gone calls until nothing is left.
REMOVED_AT_ONCE = 500


class Profiles:
    """Who there is."""

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
        item = await self.store.get(COMMIT_COLLECT, at(user(user_id), PROFILE))
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
        """Whether the profile is new; one that is there stays as it is."""
        item: Item = at(user(profile.user_id), PROFILE) | {
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
        """First of all: without a profile nothing new can be written for this person."""
        await self.store.delete(COMMIT_COLLECT, at(user(user_id), PROFILE))

    @access(
        "Delete a user's items",
        Query + BatchWriteItem,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, keys alone; deletes in batches of 25",
        by="user",
        trigger="DELETE /account",
        frequency="Rare",
        bound=REMOVED_AT_ONCE,
    )
    async def remove_some(self, user_id: str) -> int:
        """Remove up to 500 items of the partition, and say how many there were."""
        mine = F("PK") == user(user_id)
        keys = [
            COMMIT_COLLECT.key_of(item)
            async for item in self.store.items(
                COMMIT_COLLECT,
                mine,
                project=("PK", "SK"),
                consistent=True,
                bound=REMOVED_AT_ONCE,
                overflow="stop",
            )
        ]
        await self.store.write_many(COMMIT_COLLECT, deletes=keys)
        return len(keys)
