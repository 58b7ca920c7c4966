"""The table `live-activities`: what each device of each follower shows of a match, from `pending` over `active` to `ended`.

Every step is one conditional write, so that of many who try at once one succeeds: whoever claims a
start may send it, and whoever ends an activity says why. One that has ended stays so until it is
begun anew, and never wakes up by a token that comes late.
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

WHO: Final = "userId#deviceId"

LIVE_ACTIVITIES = Table(
    "live-activities",
    partition=S("matchId"),
    sort=S(WHO),
    ttl="ttl",
    attributes=(
        Attribute("matchId", "S", required=True, about="The match being followed"),
        Attribute(WHO, "S", required=True, about="Composite key for user + device"),
        Attribute("userId", "S", required=True),
        Attribute("deviceId", "S", required=True),
        Attribute("teamId", "S", required=True, about='the side that they are on, or "neutral"'),
        Attribute("status", "S", required=True, about="pending, active, or ended"),
        Attribute(
            "updateToken",
            "S",
            about="Current APNs update token for this LA; gone once the device knows that it has ended",
        ),
        Attribute("channelId", "S", about="the broadcast channel that it was started on"),
        Attribute(
            "endReason", "S", about="match_end, user_unfollow, user_dismissed, token_invalid"
        ),
        Attribute("starts", "N", required=True, about="pushes-to-start so far"),
        Attribute("startedAt", "N", about="epoch milliseconds of the last push-to-start"),
        Attribute("shown", "S", about="the hash of the display state that it showed"),
        Attribute("createdAt", "N", required=True, about="Epoch timestamp, milliseconds"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("ttl", "N", required=True, about="epoch seconds: auto-cleanup after match ends"),
    ),
)
_SHAPE: Final = ItemMapper(LiveActivity, expires_at="ttl")
_PUSHED: Final = ("matchId", "userId", "deviceId", "teamId", "updateToken", "channelId")
# It was swiped away there, or the token leads nowhere.
KNOWN_BY_THE_DEVICE: Final = frozenset({EndReason.USER_DISMISSED, EndReason.TOKEN_INVALID})
MAX_ACTIVITIES: Final = 5_000_000
MAX_OF_ONE: Final = 100
PAGE: Final = 500


def _key(match_id: str, user_id: str, device_id: str) -> Item:
    return {"matchId": match_id, WHO: activity_key(user_id, device_id)}


def _over(reasons: Collection[EndReason], now: int) -> Condition:
    """There is none, or one that has expired, or one that has ended for one of these reasons."""
    gone = not_exists("matchId") | (F("ttl") <= now // 1000)
    if not reasons:
        return gone
    return gone | (
        (F("status") == ActivityStatus.ENDED.value)
        & F("endReason").is_in(*(reason.value for reason in reasons))
    )


def _target(item: Item) -> PushTarget:
    """By hand, since there are hundreds of thousands of them."""
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
    """Live Activities by match, person and device.

    `now` is in milliseconds; what has expired by then is not there.
    """

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
            None if item is None or has_expired(item["ttl"], now // 1000) else _SHAPE.record(item)
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
    async def create(self, activity: LiveActivity, anew_after: Collection[EndReason] = ()) -> bool:
        """Whether there was none; one that ended for one of these reasons is begun anew."""
        item = _SHAPE.item(activity) | _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            await self.store.put(
                LIVE_ACTIVITIES, item, condition=_over(anew_after, activity.updated_at)
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
        """Whether the start is this caller's to send: it is pending, and nobody has sent one since it was read."""
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
            await self.store.update(LIVE_ACTIVITIES, key, *_SHAPE.steps(changes), condition=is_same)
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
        """The activity as it stands now, active with this token or channel; None where it has ended, and stays so."""
        may = _over((EndReason.TOKEN_INVALID,), activity.updated_at) | (
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
        kept = (
            F("createdAt").set(F("createdAt").if_not_exists(activity.created_at)),
            F("starts").set(F("starts").if_not_exists(0)),
        )
        steps = [*_SHAPE.steps(changes), *kept]
        key = _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            return _SHAPE.record(
                await self.store.update(
                    LIVE_ACTIVITIES, key, *steps, condition=may, returns="ALL_NEW"
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
        trigger="DELETE /user/follow/:matchId, POST /matches/:id/activity-dismissed, a refused token, match end",
        frequency="Once per Live Activity",
    )
    async def end(
        self,
        activity: LiveActivity | PushTarget,
        reason: EndReason,
        now: int,
        only_token: str | None = None,
    ) -> LiveActivity | None:
        """The activity as it was; None where it is not there or has ended, or has another token than the one to end.

        Where the device does not know yet, it keeps its token until `settle_end`: whoever sees it
        tells the device once more.
        """
        is_on = exists("matchId") & (F("status") != ActivityStatus.ENDED.value)
        if only_token is not None:
            is_on &= F("updateToken") == only_token
        changes: dict[str, Any] = {
            "status": ActivityStatus.ENDED,
            "end_reason": reason,
            "updated_at": now,
        }
        if reason in KNOWN_BY_THE_DEVICE:
            changes["update_token"] = None
        key = _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            item = await self.store.update(
                LIVE_ACTIVITIES, key, *_SHAPE.steps(changes), condition=is_on, returns="ALL_OLD"
            )
        except ConditionFailed:
            return None
        return _SHAPE.record(item or {})

    @access(
        "Settle ended Live Activity",
        UpdateItem.conditional,
        table=LIVE_ACTIVITIES,
        key="PK=matchId, SK=userId#deviceId with status = ended AND updateToken = :told",
        by="both",
        trigger="An end that APNs has taken, or whose token it does not know",
        frequency="Once per Live Activity",
    )
    async def settle_end(self, activity: LiveActivity) -> bool:
        """Forget the token of an activity whose device knows that it has ended; whether it was still there."""
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
        """As much as a push wants of all that are active, by person and device, a page at a time."""
        is_active = (F("status") == ActivityStatus.ACTIVE.value) & (F("ttl") > now // 1000)
        start: Key | None = None
        while True:
            page = await self.store.query(
                LIVE_ACTIVITIES,
                F("matchId") == match_id,
                filter=is_active,
                project=_PUSHED,
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
    async def of_match(self, match_id: str, now: int) -> AsyncGenerator[LiveActivity, None]:
        """All of them, whatever their status, by person and device, a page at a time."""
        where, alive = F("matchId") == match_id, F("ttl") > now // 1000
        async for item in self.store.items(
            LIVE_ACTIVITIES, where, filter=alive, page=PAGE, consistent=True
        ):
            yield _SHAPE.record(item)

    @access(
        "Get user's Live Activities for match",
        Query,
        table=LIVE_ACTIVITIES,
        key="PK=matchId AND begins_with(SK, userId#) with filter userId = :user AND ttl > :now",
        by="both",
        trigger="Unfollow cascade, PATCH /user/follow/:matchId, MatchOrchestrator",
        frequency="On unfollow",
        bound=MAX_OF_ONE,
    )
    async def of_user(self, match_id: str, user_id: str, now: int) -> list[LiveActivity]:
        """One person's, on all devices."""
        where = (F("matchId") == match_id) & F(WHO).begins_with(activity_key(user_id, ""))
        theirs = (F("userId") == user_id) & (F("ttl") > now // 1000)
        return [
            _SHAPE.record(item)
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
        """Show the match from another side from now on; whether there is such an activity."""
        key = _key(activity.match_id, activity.user_id, activity.device_id)
        try:
            await self.store.update(
                LIVE_ACTIVITIES, key, F("teamId").set(team_id), condition=exists("matchId")
            )
        except ConditionFailed:
            return False
        return True
