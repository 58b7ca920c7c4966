"""The table `cricket-activity-subscriptions`: Live Activities that apps started themselves.

The sort key is the push token, so that a user with a phone and a tablet has two.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.records import ActivitySubscription
from tally.cricket.repository.items import ItemMapper, delete_match_items
from tally.store.access import BatchWriteItem, DeleteItem, Query, UpdateItem, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

CRICKET_ACTIVITY_SUBSCRIPTIONS = Table(
    "cricket-activity-subscriptions",
    partition=S("matchId"),
    sort=S("pushToken"),
    ttl="expiresAt",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute("pushToken", "S", required=True, about="push token of the Live Activity"),
        Attribute("userId", "S", required=True, about="Cognito user ID"),
        Attribute("teamId", "S", required=True, about='the followed team, or "neutral"'),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
        Attribute(
            "expiresAt", "N", required=True, about="epoch seconds, 48 hours after the match starts"
        ),
    ),
)
_MAPPER: Final = ItemMapper(ActivitySubscription)
MAX_SUBSCRIPTIONS: Final = 2_000_000
PAGE: Final = 500


def _key(match_id: str, push_token: str) -> Item:
    return {"matchId": match_id, "pushToken": push_token}


@dataclass(frozen=True, slots=True)
class ActivitySubscriptionRepository:
    """Subscriptions by match."""

    store: Store
    tables: ClassVar = (CRICKET_ACTIVITY_SUBSCRIPTIONS,)

    @access(
        "Get all subscriptions for match",
        Query,
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        key="PK=matchId (paginated)",
        by="system",
        trigger="LiveActivityPushJob",
        frequency="Every 2.5s per live match",
        bound=MAX_SUBSCRIPTIONS,
    )
    async def list_by_match(
        self, match_id: str, now: int
    ) -> AsyncGenerator[ActivitySubscription, None]:
        """Yield the subscriptions of a match that have not expired at `now` seconds, by token."""
        where, alive = F("matchId") == match_id, F("expiresAt") > now
        async for item in self.store.items(
            CRICKET_ACTIVITY_SUBSCRIPTIONS, where, filter=alive, page=PAGE, consistent=True
        ):
            yield _MAPPER.to_record(item)

    @access(
        "Register LA subscription",
        UpdateItem.with_note("upsert"),
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        key=(
            "PK=matchId, SK=pushToken, "
            "SET userId, teamId, expiresAt, createdAt = if_not_exists(...)"
        ),
        by="user",
        trigger="POST /user/activity/:matchId",
        frequency="When iOS starts Live Activity",
    )
    async def register(self, subscription: ActivitySubscription) -> ActivitySubscription:
        actions = (
            F("userId").set(subscription.user_id),
            F("teamId").set(subscription.team_id),
            F("expiresAt").set(subscription.expires_at),
            F("createdAt").set(F("createdAt").if_not_exists(subscription.created_at)),
        )
        key = _key(subscription.match_id, subscription.push_token)
        return _MAPPER.to_record(
            await self.store.update(
                CRICKET_ACTIVITY_SUBSCRIPTIONS, key, *actions, returns="ALL_NEW"
            )
            or {}
        )

    @access(
        "Remove single subscription",
        DeleteItem,
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        key="PK=matchId, SK=pushToken",
        by="user",
        trigger="DELETE /user/activity/:matchId",
        frequency="When iOS ends Live Activity",
    )
    async def remove(self, match_id: str, push_token: str, user_id: str) -> bool:
        """Delete a subscription of this user; return False if there is none."""
        try:
            key = _key(match_id, push_token)
            await self.store.delete(
                CRICKET_ACTIVITY_SUBSCRIPTIONS, key, condition=F("userId") == user_id
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Remove user’s subscriptions for match",  # noqa: RUF001
        Query + DeleteItem,
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        key="Query PK=matchId with FilterExpression: userId = :userId, then delete each",
        by="user",
        trigger="Unfollow cascade",
        frequency="On unfollow",
        bound=MAX_SUBSCRIPTIONS,
    )
    async def remove_by_user(self, match_id: str, user_id: str) -> list[ActivitySubscription]:
        """Delete the subscriptions of a user for a match; return them by token."""
        where, theirs = F("matchId") == match_id, F("userId") == user_id
        items = self.store.items(
            CRICKET_ACTIVITY_SUBSCRIPTIONS, where, filter=theirs, page=PAGE, consistent=True
        )
        removed = [_MAPPER.to_record(item) async for item in items]
        for subscription in removed:
            await self.store.delete(
                CRICKET_ACTIVITY_SUBSCRIPTIONS, _key(match_id, subscription.push_token)
            )
        return removed

    @access(
        "Remove all subscriptions for match",
        Query + BatchWriteItem,
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        key="Query PK=matchId, then batch delete all",
        by="system",
        trigger="Match completion cleanup",
        frequency="Once per match end",
        bound=MAX_SUBSCRIPTIONS,
    )
    async def remove_all(self, match_id: str) -> int:
        """Delete all subscriptions of a match, including expired ones; return their number."""
        return await delete_match_items(self.store, CRICKET_ACTIVITY_SUBSCRIPTIONS, match_id)
