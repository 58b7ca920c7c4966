"""Access patterns of `live-activities` by user: a part of `LiveActivityRepository`."""

from dataclasses import dataclass
from typing import Final

from tally.cricket.model.records import ActivityStatus, LiveActivity, activity_key
from tally.cricket.repository.live_activity_items import (
    ACTIVITY_KEY,
    ACTIVITY_MAPPER,
    BY_USER,
    LIVE_ACTIVITIES,
    USER_AND_DEVICE,
    live_activity_key,
)
from tally.store.access import DeleteItem, GetItem, Query, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.store import Store

# More than a user may register, because concurrent requests can exceed the limit.
MAX_PER_USER: Final = 1_000


@dataclass(frozen=True, slots=True)
class UserActivityPatterns:
    """Live Activities of a user, for one match or for all."""

    store: Store

    @access(
        "Get user's Live Activities for match",
        Query(
            where=(F("matchId") == param("matchId"))
            & F(USER_AND_DEVICE).begins_with(activity_key(param("user"), "")),
            filter=(F("userId") == param("user")) & (F("ttl") > param("now")),
        ),
        table=LIVE_ACTIVITIES,
        by="both",
        trigger="Unfollow cascade, PATCH /user/follow/:matchId, MatchOrchestrator",
        frequency="On unfollow",
        bound=MAX_PER_USER,
    )
    async def list_by_user(self, match_id: str, user_id: str, now: int) -> list[LiveActivity]:
        """Return the activities of a user on all devices."""
        where = (F("matchId") == match_id) & F(USER_AND_DEVICE).begins_with(
            activity_key(user_id, "")
        )
        theirs = (F("userId") == user_id) & (F("ttl") > now // 1000)
        return [
            ACTIVITY_MAPPER.to_record(item)
            async for item in self.store.items(
                LIVE_ACTIVITIES,
                where,
                filter=theirs,
                consistent=True,
                bound=MAX_PER_USER,
                overflow="stop",
            )
        ]

    @access(
        "Get all Live Activities of user",
        Query(where=F("userId") == param("user"), index=BY_USER)
        + GetItem(key=ACTIVITY_KEY, requests=MAX_PER_USER),
        table=LIVE_ACTIVITIES,
        by="user",
        trigger="DELETE /user, DELETE /user/device, POST /user/device by another user",
        frequency="Rare",
        bound=2 * MAX_PER_USER,
    )
    async def list_by_owner(self, user_id: str) -> list[LiveActivity]:
        """Return a user's activities of all matches, including expired ones."""
        keys = self.store.items(
            LIVE_ACTIVITIES,
            F("userId") == user_id,
            index=BY_USER,
            bound=MAX_PER_USER,
            overflow="stop",
        )
        items = [
            await self.store.get(
                LIVE_ACTIVITIES, {name: key[name] for name in LIVE_ACTIVITIES.key_names}
            )
            async for key in keys
        ]
        return [ACTIVITY_MAPPER.to_record(item) for item in items if item is not None]

    @access(
        "Delete ended Live Activity",
        DeleteItem(
            key=ACTIVITY_KEY,
            condition=(F("status") == ActivityStatus.ENDED.value) & not_exists("updateToken"),
        ),
        table=LIVE_ACTIVITIES,
        by="user",
        trigger="DELETE /user",
        frequency="Rare",
    )
    async def delete_ended(self, activity: LiveActivity) -> bool:
        """Delete an activity; return False if it runs, or if its end was not delivered."""
        is_settled = (F("status") == ActivityStatus.ENDED.value) & not_exists("updateToken")
        key = live_activity_key(activity.match_id, activity.user_id, activity.device_id)
        try:
            await self.store.delete(LIVE_ACTIVITIES, key, condition=is_settled)
        except ConditionFailed:
            return False
        return True
