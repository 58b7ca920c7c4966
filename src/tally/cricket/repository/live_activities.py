"""The table `live-activities`: the Live Activity of a match on each device of a follower.

The status changes from `pending` to `active` to `ended`. Every transition is one conditional write,
so one of several concurrent callers succeeds: the one that claims a start sends it, and the one
that ends an activity sets the reason. A late token does not reactivate an ended activity.
"""

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.cricket.model.events import AlertChoice
from tally.cricket.model.records import (
    ActivityStatus,
    EndReason,
    LiveActivity,
    PushTarget,
    has_expired,
)
from tally.cricket.repository.live_activity_items import (
    ACTIVITY_KEY,
    ACTIVITY_MAPPER,
    LIVE_ACTIVITIES,
    live_activity_key,
)
from tally.cricket.repository.user_activities import UserActivityPatterns
from tally.store.access import GetItem, PutItem, Query, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.values import Item, Key

_TARGET_ATTRIBUTES: Final = (
    "matchId",
    "userId",
    "deviceId",
    "teamId",
    "alerts",
    "updateToken",
    "channelId",
)
_ALERT_CHOICES: Final = {choice.value: choice for choice in AlertChoice}
_CLAIMED_FIELDS: Final = (
    "status",
    "team_id",
    "alerts",
    "channel_id",
    "update_token",
    "starts",
    "started_at",
    "shown",
    "updated_at",
)
# The device needs no end push: the user dismissed the activity, or its token is invalid.
END_PUSH_NOT_NEEDED: Final = frozenset({EndReason.USER_DISMISSED, EndReason.TOKEN_INVALID})
MAX_ACTIVITIES: Final = 5_000_000
PAGE: Final = 500


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
        alerts=_ALERT_CHOICES[item.get("alerts", "all")],
        update_token=item.get("updateToken"),
        channel_id=item.get("channelId"),
    )


_OF_MATCH: Final = F("matchId") == param("matchId")
_IS_GONE: Final = not_exists("matchId") | (F("ttl") <= param("now"))
_HAS_ENDED_FOR: Final = (F("status") == ActivityStatus.ENDED.value) & F("endReason").is_in(
    param("reasons")
)
_HAS_NOT_ENDED: Final = F("status") != ActivityStatus.ENDED.value
_IS_AS_SEEN: Final = (F("status") == param("status")) & (F("starts") == param("starts"))


@dataclass(frozen=True, slots=True)
class LiveActivityRepository(UserActivityPatterns):
    """Live Activities by match, user and device, without those expired at `now` milliseconds."""

    tables: ClassVar = (LIVE_ACTIVITIES,)

    @access(
        "Get Live Activity",
        GetItem(key=ACTIVITY_KEY),
        table=LIVE_ACTIVITIES,
        by="both",
        trigger="POST /matches/:id/activity-token, MatchOrchestrator",
        frequency="Per request",
    )
    async def get(
        self, match_id: str, user_id: str, device_id: str, now: int
    ) -> LiveActivity | None:
        item = await self.store.get(
            LIVE_ACTIVITIES, live_activity_key(match_id, user_id, device_id), consistent=True
        )
        return (
            None
            if item is None or has_expired(item["ttl"], now // 1000)
            else ACTIVITY_MAPPER.to_record(item)
        )

    @access(
        "Create pending Live Activity",
        PutItem(key=ACTIVITY_KEY, condition=(_IS_GONE, _IS_GONE | _HAS_ENDED_FOR)),
        table=LIVE_ACTIVITIES,
        by="both",
        trigger="POST /user/follow/:matchId, MatchOrchestrator",
        frequency="Once per follower and device",
    )
    async def create(self, activity: LiveActivity, restartable: Collection[EndReason] = ()) -> bool:
        """Create an activity, or restart one that ended for a `restartable` reason."""
        item = ACTIVITY_MAPPER.to_item(activity) | live_activity_key(
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
        UpdateItem(key=ACTIVITY_KEY, condition=_IS_AS_SEEN),
        table=LIVE_ACTIVITIES,
        by="both",
        trigger="POST /user/follow/:matchId, MatchOrchestrator",
        frequency="Per push-to-start",
    )
    async def claim_start(self, seen: LiveActivity, claimed: LiveActivity) -> bool:
        """Claim the next start of an activity; return False if it has changed since it was seen."""
        changes = {name: getattr(claimed, name) for name in _CLAIMED_FIELDS}
        return await self._change(seen, changes)

    @access(
        "Release push-to-start",
        UpdateItem(key=ACTIVITY_KEY, condition=_IS_AS_SEEN),
        table=LIVE_ACTIVITIES,
        by="both",
        trigger="A push-to-start that was not sent, or that APNs did not accept",
        frequency="Rare",
    )
    async def release_start(self, claimed: LiveActivity, started_at: int | None) -> bool:
        """Set back the time of a claimed start; return False if its activity has changed."""
        return await self._change(claimed, {"started_at": started_at})

    @access(
        "Confirm Live Activity on channel",
        UpdateItem(
            key=ACTIVITY_KEY,
            condition=exists("channelId") & _HAS_NOT_ENDED & (F("ttl") > param("now")),
        ),
        table=LIVE_ACTIVITIES,
        by="user",
        trigger="POST /matches/:id/activity-started",
        frequency="When iOS starts a Live Activity",
    )
    async def confirm(
        self, match_id: str, user_id: str, device_id: str, now: int
    ) -> LiveActivity | None:
        """Activate an activity on a channel; return None if there is none or it has ended."""
        is_running = exists("channelId") & (F("status") != ActivityStatus.ENDED.value)
        changes = {"status": ActivityStatus.ACTIVE, "updated_at": now}
        try:
            item = await self.store.update(
                LIVE_ACTIVITIES,
                live_activity_key(match_id, user_id, device_id),
                *ACTIVITY_MAPPER.update_actions(changes),
                condition=is_running & (F("ttl") > now // 1000),
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return ACTIVITY_MAPPER.to_record(item or {})

    @access(
        "Report missing Live Activity",
        UpdateItem(key=ACTIVITY_KEY, condition=F("status") == ActivityStatus.ACTIVE.value),
        table=LIVE_ACTIVITIES,
        by="user",
        trigger="POST /matches/:id/activity-ended",
        frequency="When iOS or the app ends a Live Activity",
    )
    async def mark_missing(self, match_id: str, user_id: str, device_id: str, now: int) -> bool:
        """Make an active activity pending again; return False if it is not active."""
        changes = {"status": ActivityStatus.PENDING, "update_token": None, "updated_at": now}
        try:
            await self.store.update(
                LIVE_ACTIVITIES,
                live_activity_key(match_id, user_id, device_id),
                *ACTIVITY_MAPPER.update_actions(changes),
                condition=F("status") == ActivityStatus.ACTIVE.value,
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Register or rotate update token",
        UpdateItem(key=ACTIVITY_KEY, condition=_IS_GONE | _HAS_ENDED_FOR | _HAS_NOT_ENDED),
        table=LIVE_ACTIVITIES,
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
            "alerts": activity.alerts,
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
        actions = [*ACTIVITY_MAPPER.update_actions(changes), *preserved]
        key = live_activity_key(activity.match_id, activity.user_id, activity.device_id)
        try:
            return ACTIVITY_MAPPER.to_record(
                await self.store.update(
                    LIVE_ACTIVITIES, key, *actions, condition=may_activate, returns="ALL_NEW"
                )
                or {}
            )
        except ConditionFailed:
            return None

    @access(
        "End Live Activity",
        UpdateItem(
            key=ACTIVITY_KEY,
            condition=(
                exists("matchId") & _HAS_NOT_ENDED,
                exists("matchId") & _HAS_NOT_ENDED & (F("updateToken") == param("token")),
            ),
        ),
        table=LIVE_ACTIVITIES,
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
        key = live_activity_key(activity.match_id, activity.user_id, activity.device_id)
        try:
            item = await self.store.update(
                LIVE_ACTIVITIES,
                key,
                *ACTIVITY_MAPPER.update_actions(changes),
                condition=is_running,
                returns="ALL_OLD",
            )
        except ConditionFailed:
            return None
        return ACTIVITY_MAPPER.to_record(item or {})

    @access(
        "Settle ended Live Activity",
        UpdateItem(
            key=ACTIVITY_KEY,
            condition=(F("status") == ActivityStatus.ENDED.value)
            & (F("updateToken") == param("token")),
        ),
        table=LIVE_ACTIVITIES,
        by="both",
        trigger="An end that APNs accepted, or whose token it rejected",
        frequency="Once per Live Activity",
    )
    async def mark_end_delivered(self, activity: LiveActivity) -> bool:
        """Remove the token of an ended activity; return False if it has changed."""
        is_same = (F("status") == ActivityStatus.ENDED.value) & (
            F("updateToken") == activity.update_token
        )
        key = live_activity_key(activity.match_id, activity.user_id, activity.device_id)
        try:
            await self.store.update(
                LIVE_ACTIVITIES, key, F("updateToken").remove(), condition=is_same
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Get active Live Activities for match",
        Query(
            where=_OF_MATCH,
            filter=(F("status") == ActivityStatus.ACTIVE.value) & (F("ttl") > param("now")),
            project=_TARGET_ATTRIBUTES,
        ),
        table=LIVE_ACTIVITIES,
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
        Query(where=_OF_MATCH, filter=F("ttl") > param("now")),
        table=LIVE_ACTIVITIES,
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
            yield ACTIVITY_MAPPER.to_record(item)

    @access(
        "Update Live Activity team",
        UpdateItem(key=ACTIVITY_KEY, condition=exists("matchId")),
        table=LIVE_ACTIVITIES,
        by="user",
        trigger="PATCH /user/follow/:matchId",
        frequency="User action",
    )
    async def change_follow(
        self, activity: LiveActivity, team_id: str, alerts: AlertChoice
    ) -> bool:
        """Change the team and the alert choice; return False if there is no such activity."""
        key = live_activity_key(activity.match_id, activity.user_id, activity.device_id)
        try:
            await self.store.update(
                LIVE_ACTIVITIES,
                key,
                F("teamId").set(team_id),
                F("alerts").set(alerts.value),
                condition=exists("matchId"),
            )
        except ConditionFailed:
            return False
        return True

    async def _change(self, seen: LiveActivity, changes: Mapping[str, Any]) -> bool:
        """Change an activity if its status and its number of starts are as seen."""
        is_same = (F("status") == seen.status.value) & (F("starts") == seen.starts)
        key = live_activity_key(seen.match_id, seen.user_id, seen.device_id)
        try:
            await self.store.update(
                LIVE_ACTIVITIES, key, *ACTIVITY_MAPPER.update_actions(changes), condition=is_same
            )
        except ConditionFailed:
            return False
        return True
