"""The table `live-activities`: the Live Activity of a match on each device of a follower.

The status changes from `pending` to `active` to `ended`. Every transition is one conditional write,
so one of several concurrent callers succeeds: the one that claims a start sends it, and the one
that ends an activity sets the reason. A late token does not reactivate an ended activity.
"""

from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.cricket.model.records import (
    ActivityStatus,
    EndReason,
    LiveActivity,
    PushTarget,
    activity_key,
    has_expired,
)
from tally.cricket.repository.items import ItemMapper
from tally.store.access import GetItem, PutItem, Query, UpdateItem, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

USER_AND_DEVICE: Final = "userId#deviceId"

LIVE_ACTIVITIES = Table(
    "live-activities",
    partition=S("matchId"),
    sort=S(USER_AND_DEVICE),
    ttl="ttl",
    attributes=(
        Attribute("matchId", "S", required=True, about="The match being followed"),
        Attribute(USER_AND_DEVICE, "S", required=True, about="Composite key for user + device"),
        Attribute("userId", "S", required=True),
        Attribute("deviceId", "S", required=True),
        Attribute("teamId", "S", required=True, about='the followed team, or "neutral"'),
        Attribute("status", "S", required=True, about="pending, active, or ended"),
        Attribute(
            "updateToken",
            "S",
            about="Current APNs update token for this LA; removed when the end is delivered",
        ),
        Attribute("channelId", "S", about="the broadcast channel it was started with"),
        Attribute(
            "endReason", "S", about="match_end, user_unfollow, user_dismissed, token_invalid"
        ),
        Attribute("starts", "N", required=True, about="number of push-to-start requests"),
        Attribute("startedAt", "N", about="epoch milliseconds of the last push-to-start"),
        Attribute("shown", "S", about="hash of the content of the last push-to-start"),
        Attribute("createdAt", "N", required=True, about="Epoch timestamp, milliseconds"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("ttl", "N", required=True, about="epoch seconds: auto-cleanup after match ends"),
    ),
)
_MAPPER: Final = ItemMapper(LiveActivity, expires_at="ttl")
_TARGET_ATTRIBUTES: Final = ("matchId", "userId", "deviceId", "teamId", "updateToken", "channelId")
# The device needs no end push: the user dismissed the activity, or its token is invalid.
END_PUSH_NOT_NEEDED: Final = frozenset({EndReason.USER_DISMISSED, EndReason.TOKEN_INVALID})
MAX_ACTIVITIES: Final = 5_000_000
MAX_PER_USER: Final = 100
PAGE: Final = 500


def _key(match_id: str, user_id: str, device_id: str) -> Item:
    return {"matchId": match_id, USER_AND_DEVICE: activity_key(user_id, device_id)}


def _is_absent(reasons: Collection[EndReason], now: int) -> Condition:
    """The activity does not exist, has expired, or has ended for one of the reasons."""
    is_gone = not_exists("matchId") | (F("ttl") <= now // 1000)
    if not reasons:
        return is_gone
    return is_gone | (
        (F("status") == ActivityStatus.ENDED.value)
        & F("endReason").is_in(*(reason.value for reason in reasons))
    )


def _target(item: Item) -> PushTarget:
    """Convert without a mapper, because a match may have hundreds of thousands of targets."""
    return PushTarget(
        match_id=item["matchId"],
        user_id=item["userId"],
        device_id=item["deviceId"],
        team_id=item["teamId"],
        update_token=item.get("updateToken"),
        channel_id=item.get("channelId"),
    )


@dataclass(frozen=True, slots=True)
class LiveActivityRepository:
    """Live Activities by match, user and device, without those expired at `now` milliseconds."""

    store: Store
    tables: ClassVar = (LIVE_ACTIVITIES,)

    @access(
        "Get Live Activity",
        GetItem,
        table=LIVE_ACTIVITIES,
        key="PK=matchId, SK=userId#deviceId",
        by="both",
        trigger="POST /matches/:id/activity-token, MatchOrchestrator",
        frequency="Per request",
    )
    async def get(
        self, match_id: str, user_id: str, device_id: str, now: int
    ) -> LiveActivity | None:
        item = await self.store.get(
            LIVE_ACTIVITIES, _key(match_id, user_id, device_id), consistent=True
        )
        return (
            None
            if item is None or has_expired(item["ttl"], now // 1000)
            else _MAPPER.to_record(item)
        )

    @access(
        "Create pending Live Activity",
        PutItem.conditional,
        table=LIVE_ACTIVITIES,
        key="PK=matchId, SK=userId#deviceId, absent, expired, or ended for one of :reasons",
        by="both",
        trigger="POST /user/follow/:matchId, MatchOrchestrator",
        frequency="Once per follower and device",
    )
    async def create(self, activity: LiveActivity, restartable: Collection[EndReason] = ()) -> bool:
        """Create an activity, or restart one that ended for a `restartable` reason."""
        item = _MAPPER.to_item(activity) | _key(
            activity.match_id, activity.user_id, activity.device_id
        )
        try:
            await self.store.put(
                LIVE_ACTIVITIES, item, condition=_is_absent(restartable, activity.updated_at)
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Claim push-to-start",
        UpdateItem.conditional,
        table=LIVE_ACTIVITIES,
        key="PK=matchId, SK=userId#deviceId with status = pending AND starts = :seen",
        by="both",
        trigger="POST /user/follow/:matchId, MatchOrchestrator",
        frequency="Per push-to-start",
    )
    async def claim_start(
        self, activity: LiveActivity, now: int, channel_id: str | None, shown: str
    ) -> bool:
        """Claim the next start; return False if it is not pending or another one was claimed."""
        is_same = (F("status") == ActivityStatus.PENDING.value) & (F("starts") == activity.starts)
        changes = {
            "starts": activity.starts + 1,
            "started_at": now,
            "updated_at": now,
            "channel_id": channel_id,
            "shown": shown,
        }
        key = _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            await self.store.update(
                LIVE_ACTIVITIES, key, *_MAPPER.update_actions(changes), condition=is_same
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Register or rotate update token",
        UpdateItem.conditional,
        table=LIVE_ACTIVITIES,
        key="PK=matchId, SK=userId#deviceId, unless it has ended otherwise than by token_invalid",
        by="user",
        trigger="POST /matches/:id/activity-token",
        frequency="When iOS starts a Live Activity or rotates its token",
    )
    async def activate(self, activity: LiveActivity) -> LiveActivity | None:
        """Activate with a token or channel; return None if the activity has ended."""
        may_activate = _is_absent((EndReason.TOKEN_INVALID,), activity.updated_at) | (
            F("status") != ActivityStatus.ENDED.value
        )
        changes = {
            "user_id": activity.user_id,
            "device_id": activity.device_id,
            "team_id": activity.team_id,
            "status": ActivityStatus.ACTIVE,
            "update_token": activity.update_token,
            "channel_id": activity.channel_id,
            "end_reason": None,
            "updated_at": activity.updated_at,
            "expires_at": activity.expires_at,
        }
        preserved = (
            F("createdAt").set(F("createdAt").if_not_exists(activity.created_at)),
            F("starts").set(F("starts").if_not_exists(0)),
        )
        actions = [*_MAPPER.update_actions(changes), *preserved]
        key = _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            return _MAPPER.to_record(
                await self.store.update(
                    LIVE_ACTIVITIES, key, *actions, condition=may_activate, returns="ALL_NEW"
                )
                or {}
            )
        except ConditionFailed:
            return None

    @access(
        "End Live Activity",
        UpdateItem.conditional,
        table=LIVE_ACTIVITIES,
        key="PK=matchId, SK=userId#deviceId with attribute_exists(matchId) AND status <> ended",
        by="both",
        trigger=(
            "DELETE /user/follow/:matchId, POST /matches/:id/activity-dismissed, a rejected token, "
            "match end"
        ),
        frequency="Once per Live Activity",
    )
    async def end(
        self,
        activity: LiveActivity | PushTarget,
        reason: EndReason,
        now: int,
        only_token: str | None = None,
    ) -> LiveActivity | None:
        """End an activity and return its previous state.

        Returns None if it does not exist, has ended, or has another token than `only_token`. The
        token is preserved until `mark_end_delivered`, so that the end can be sent again.
        """
        is_running = exists("matchId") & (F("status") != ActivityStatus.ENDED.value)
        if only_token is not None:
            is_running &= F("updateToken") == only_token
        changes: dict[str, Any] = {
            "status": ActivityStatus.ENDED,
            "end_reason": reason,
            "updated_at": now,
        }
        if reason in END_PUSH_NOT_NEEDED:
            changes["update_token"] = None
        key = _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            item = await self.store.update(
                LIVE_ACTIVITIES,
                key,
                *_MAPPER.update_actions(changes),
                condition=is_running,
                returns="ALL_OLD",
            )
        except ConditionFailed:
            return None
        return _MAPPER.to_record(item or {})

    @access(
        "Settle ended Live Activity",
        UpdateItem.conditional,
        table=LIVE_ACTIVITIES,
        key="PK=matchId, SK=userId#deviceId with status = ended AND updateToken = :token",
        by="both",
        trigger="An end that APNs accepted, or whose token it rejected",
        frequency="Once per Live Activity",
    )
    async def mark_end_delivered(self, activity: LiveActivity) -> bool:
        """Remove the token of an ended activity; return False if it has changed."""
        is_same = (F("status") == ActivityStatus.ENDED.value) & (
            F("updateToken") == activity.update_token
        )
        key = _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            await self.store.update(
                LIVE_ACTIVITIES, key, F("updateToken").remove(), condition=is_same
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Get active Live Activities for match",
        Query,
        table=LIVE_ACTIVITIES,
        key="PK=matchId (paginated) with filter status = active AND ttl > :now",
        by="system",
        trigger="LiveActivityPushJob",
        frequency="On each state change per live match",
        bound=MAX_ACTIVITIES,
    )
    async def targets(self, match_id: str, now: int) -> AsyncGenerator[list[PushTarget], None]:
        """Yield pages of push targets of the active activities, by user and device."""
        is_active = (F("status") == ActivityStatus.ACTIVE.value) & (F("ttl") > now // 1000)
        start: Key | None = None
        while True:
            page = await self.store.query(
                LIVE_ACTIVITIES,
                F("matchId") == match_id,
                filter=is_active,
                project=_TARGET_ATTRIBUTES,
                limit=PAGE,
                start=start,
                consistent=True,
            )
            if page.items:
                yield [_target(item) for item in page.items]
            start = page.next
            if start is None:
                return

    @access(
        "Get all Live Activities for match",
        Query,
        table=LIVE_ACTIVITIES,
        key="PK=matchId (paginated) with filter ttl > :now",
        by="system",
        trigger="MatchOrchestrator",
        frequency="Every 30s per live match",
        bound=MAX_ACTIVITIES,
    )
    async def list_by_match(self, match_id: str, now: int) -> AsyncGenerator[LiveActivity, None]:
        """Yield all activities of a match by user and device; reads page by page."""
        where, alive = F("matchId") == match_id, F("ttl") > now // 1000
        async for item in self.store.items(
            LIVE_ACTIVITIES, where, filter=alive, page=PAGE, consistent=True
        ):
            yield _MAPPER.to_record(item)

    @access(
        "Get user's Live Activities for match",
        Query,
        table=LIVE_ACTIVITIES,
        key="PK=matchId AND begins_with(SK, userId#) with filter userId = :user AND ttl > :now",
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
            _MAPPER.to_record(item)
            async for item in self.store.items(
                LIVE_ACTIVITIES, where, filter=theirs, consistent=True
            )
        ]

    @access(
        "Update Live Activity team",
        UpdateItem.conditional,
        table=LIVE_ACTIVITIES,
        key="PK=matchId, SK=userId#deviceId with attribute_exists(matchId)",
        by="user",
        trigger="PATCH /user/follow/:matchId",
        frequency="User action",
    )
    async def change_team(self, activity: LiveActivity, team_id: str) -> bool:
        """Change the team; return False if there is no such activity."""
        key = _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            await self.store.update(
                LIVE_ACTIVITIES, key, F("teamId").set(team_id), condition=exists("matchId")
            )
        except ConditionFailed:
            return False
        return True
