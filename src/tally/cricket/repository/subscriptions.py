"""The table `cricket-activity-subscriptions`: Live Activities that apps started themselves.

The sort key is the push token, so that a user with a phone and a tablet has two.
"""

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.events import AlertChoice
from tally.cricket.model.records import ActivitySubscription
from tally.cricket.repository.items import ItemMapper, delete_match_items, match_deletion
from tally.store.access import DeleteItem, Query, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import Condition, F
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item

BY_USER: Final = "userId-index"

CRICKET_ACTIVITY_SUBSCRIPTIONS = Table(
    "cricket-activity-subscriptions",
    partition=S("matchId"),
    sort=S("pushToken"),
    indexes=(GlobalIndex(BY_USER, partition=S("userId"), sort=S("matchId")),),
    ttl="expiresAt",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute("pushToken", "S", required=True, about="push token of the Live Activity"),
        Attribute("userId", "S", required=True, about="Cognito user ID"),
        Attribute("teamId", "S", required=True, about='the followed team, or "neutral"'),
        Attribute("alerts", "S", about="the follow's choice; all if absent"),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
        Attribute(
            "expiresAt", "N", required=True, about="epoch seconds, 48 hours after the match starts"
        ),
    ),
)
_MAPPER: Final = ItemMapper(ActivitySubscription)
MAX_SUBSCRIPTIONS: Final = 2_000_000
# More than a user may register, because concurrent requests can exceed the limit.
MAX_PER_USER: Final = 1_000
PAGE: Final = 500


def _key(match_id: str, push_token: str) -> Item:
    return {"matchId": match_id, "pushToken": push_token}


_KEY: Final = _key(param("matchId"), param("pushToken"))
_OF_MATCH: Final = F("matchId") == param("matchId")
_OF_USER: Final = F("userId") == param("userId")


@dataclass(frozen=True, slots=True)
class ActivitySubscriptionRepository:
    """Subscriptions by match."""

    store: Store
    tables: ClassVar = (CRICKET_ACTIVITY_SUBSCRIPTIONS,)

    @access(
        "Get all subscriptions for match",
        Query(where=_OF_MATCH, filter=F("expiresAt") > param("now")),
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
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
        UpdateItem(key=_KEY).with_note("upsert"),
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        by="user",
        trigger="POST /user/activity/:matchId",
        frequency="When iOS starts Live Activity",
    )
    async def register(self, subscription: ActivitySubscription) -> ActivitySubscription:
        actions = (
            F("userId").set(subscription.user_id),
            F("teamId").set(subscription.team_id),
            F("alerts").set(subscription.alerts.value),
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
        DeleteItem(key=_KEY, condition=_OF_USER),
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
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
        Query(where=_OF_MATCH, filter=_OF_USER) + DeleteItem(key=_KEY, requests=MAX_SUBSCRIPTIONS),
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
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
        "Update alerts of user's subscriptions",
        Query(where=_OF_MATCH, filter=_OF_USER)
        + UpdateItem(key=_KEY, condition=_OF_USER, requests=MAX_SUBSCRIPTIONS),
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        by="user",
        trigger="PATCH /user/follow/:matchId",
        frequency="User action",
        bound=MAX_SUBSCRIPTIONS,
    )
    async def change_alerts(self, match_id: str, user_id: str, alerts: AlertChoice) -> None:
        """Change the alert choice of a user's subscriptions for a match."""
        items = self.store.items(
            CRICKET_ACTIVITY_SUBSCRIPTIONS,
            F("matchId") == match_id,
            filter=F("userId") == user_id,
            page=PAGE,
            consistent=True,
        )
        for key in [_key(match_id, item["pushToken"]) async for item in items]:
            with suppress(ConditionFailed):  # unsubscribed in the meantime
                await self.store.update(
                    CRICKET_ACTIVITY_SUBSCRIPTIONS,
                    key,
                    F("alerts").set(alerts.value),
                    condition=F("userId") == user_id,
                )

    @access(
        "Get all subscriptions of user",
        Query(where=(_OF_USER, _OF_USER & _OF_MATCH), index=BY_USER),
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        by="user",
        trigger="POST /user/activity/:matchId, DELETE /user",
        frequency="When iOS starts Live Activity",
        bound=MAX_PER_USER,
    )
    async def list_by_owner(
        self, user_id: str, match_id: str | None = None
    ) -> list[ActivitySubscription]:
        """Return a user's subscriptions for one match or for all, including expired ones."""
        where: Condition = F("userId") == user_id
        if match_id is not None:
            where &= F("matchId") == match_id
        items = self.store.items(
            CRICKET_ACTIVITY_SUBSCRIPTIONS,
            where,
            index=BY_USER,
            bound=MAX_PER_USER,
            overflow="stop",
        )
        return [_MAPPER.to_record(item) async for item in items]

    @access(
        "Remove all subscriptions for match",
        match_deletion(CRICKET_ACTIVITY_SUBSCRIPTIONS, MAX_SUBSCRIPTIONS),
        table=CRICKET_ACTIVITY_SUBSCRIPTIONS,
        by="system",
        trigger="Match completion cleanup",
        frequency="Once per match end",
        bound=MAX_SUBSCRIPTIONS,
    )
    async def remove_all(self, match_id: str) -> int:
        """Delete all subscriptions of a match, including expired ones; return their number."""
        return await delete_match_items(self.store, CRICKET_ACTIVITY_SUBSCRIPTIONS, match_id)
