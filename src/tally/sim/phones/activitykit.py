"""Simulates ActivityKit: the Live Activities of one phone, whether or not the app runs.

A push to the push-to-start token starts an activity. Pushes to its update token or its channel
update or end it; pushes with an older timestamp are ignored. An activity runs for at most eight
hours. An ended activity leaves the Lock Screen at its dismissal date, at most four hours later.
Revoking the permission ends all activities.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from tally.errors import Forbidden
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.sim.apns.devices import PushDelivery, TokenKind
from tally.sim.phones.push_services import DevicePushService

MAX_ACTIVE_SECONDS: Final = 8 * 3600
MAX_DISMISSAL_SECONDS: Final = 4 * 3600
# Retained per phone: contents of an activity, alerts, and dismissed activities.
MAX_CONTENT_HISTORY: Final = 20
MAX_ALERTS: Final = 50
MAX_DISMISSED: Final = 5


class ActivityState(Enum):
    """ENDED activities are still on the Lock Screen; DISMISSED ones are not."""

    ACTIVE = "active"
    ENDED = "ended"
    DISMISSED = "dismissed"


@dataclass(slots=True, eq=False)
class PhoneActivity:
    """One Live Activity. Times are epoch seconds; `timestamp` is that of the current content.

    The fields are those of ActivityKit plus counters for tests, hence more than eight.
    """

    activity_id: str
    attributes: Mapping[str, Any]
    content: Mapping[str, Any]
    timestamp: int
    started_at: int
    updated_at: int
    is_push_started: bool
    channel: str | None = None
    token: str | None = None
    stale_at: int | None = None
    dismissal_at: int | None = None
    state: ActivityState = ActivityState.ACTIVE
    # The contents shown so far, latest last; only the last one after the activity ended.
    contents: deque[Mapping[str, Any]] = field(
        default_factory=lambda: deque(maxlen=MAX_CONTENT_HISTORY)
    )
    updates: int = 0
    is_ended_by_push: bool = False

    @property
    def match_id(self) -> str:
        return str(self.attributes.get("matchId", ""))

    def is_stale(self, now: int) -> bool:
        return self.stale_at is not None and now >= self.stale_at


class ActivityEvent(Enum):
    """Events that iOS reports to the app, waking it if necessary."""

    STARTED = "started"
    TOKEN = "token"  # noqa: S105  (a kind of event)
    ENDED = "ended"
    DISMISSED = "dismissed"


ActivityListener: TypeAlias = Callable[[ActivityEvent, PhoneActivity], Awaitable[None]]


class _Aps(msgspec.Struct, frozen=True, rename="kebab"):
    """The `aps` dictionary of a Live Activity push."""

    timestamp: int
    event: str
    content_state: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    alert: dict[str, Any] | None = None
    stale_date: int | None = None
    dismissal_date: int | None = None
    input_push_token: int = 0
    input_push_channel: str | None = None


class _Body(msgspec.Struct, frozen=True):
    aps: _Aps


class ActivityKit:
    """The activities of the app on one phone; `listener` receives their events."""

    def __init__(
        self, device: str, push_service: DevicePushService, clock: Clock, listener: ActivityListener
    ) -> None:
        self.is_allowed = True
        self.activities: dict[str, PhoneActivity] = {}
        self.start_token: str | None = None
        self.alerts: deque[Mapping[str, Any]] = deque(maxlen=MAX_ALERTS)
        self.alert_count = 0
        # Counts of pushes that were outdated, for no running activity, or malformed.
        self.outdated = self.unknown = self.malformed = 0
        self._device = device
        self._push_service = push_service
        self._clock = clock
        self._listener = listener

    def running(self) -> list[PhoneActivity]:
        return [
            activity
            for activity in self.activities.values()
            if activity.state is ActivityState.ACTIVE
        ]

    def on_screen(self) -> list[PhoneActivity]:
        """The activities on the Lock Screen."""
        return [
            activity
            for activity in self.activities.values()
            if activity.state is not ActivityState.DISMISSED
        ]

    async def rotate_start_token(self) -> str:
        """Issue a push-to-start token and retire the previous one."""
        if self.start_token is not None:
            await self._push_service.retire(self.start_token)
        self.start_token = await self._push_service.issue(self._device, TokenKind.START)
        return self.start_token

    async def request(
        self, attributes: Mapping[str, Any], content: Mapping[str, Any], timestamp: int
    ) -> PhoneActivity:
        """Start an activity from the app; raises Forbidden without permission."""
        if not self.is_allowed:
            raise Forbidden("Live Activities are disabled", code="activities_disabled")
        return await self._start(attributes, content, timestamp, wants_token=True)

    async def deliver(self, delivery: PushDelivery) -> None:
        """Process a push."""
        try:
            aps = msgspec.json.decode(delivery.payload, type=_Body).aps
        except msgspec.DecodeError:
            self.malformed += 1
            return
        await self.apply_time_limits()
        if aps.event == "start":
            await self._deliver_start(delivery, aps)
            return
        targets = [activity for activity in self.running() if _is_target(activity, delivery)]
        self.unknown += not targets
        for activity in targets:
            await self._update(activity, aps)

    async def rotate_token(self, activity: PhoneActivity) -> None:
        """Issue a new update token and retire the old one."""
        if activity.token is not None:
            await self._push_service.retire(activity.token)
        activity.token = await self._push_service.issue(self._device, TokenKind.UPDATE)
        await self._listener(ActivityEvent.TOKEN, activity)

    async def end(self, activity: PhoneActivity, *, dismissal_at: int | None = None) -> None:
        """End an activity; it leaves the Lock Screen at `dismissal_at`, or immediately."""
        if activity.state is not ActivityState.ACTIVE:
            return
        activity.state, activity.dismissal_at = (
            ActivityState.ENDED,
            dismissal_at if dismissal_at is not None else self._clock.seconds(),
        )
        await self._release(activity)
        await self.apply_time_limits()
        await self._listener(ActivityEvent.ENDED, activity)

    async def dismiss(self, activity: PhoneActivity) -> None:
        """Dismiss an activity, as by a swipe."""
        was_running = activity.state is ActivityState.ACTIVE
        activity.state = ActivityState.DISMISSED
        if was_running:
            await self._release(activity)
            await self._listener(ActivityEvent.DISMISSED, activity)

    async def set_allowed(self, *, is_allowed: bool) -> None:
        """Grant or revoke the permission for Live Activities."""
        self.is_allowed = is_allowed
        for activity in self.running() if not is_allowed else ():
            await self.end(activity)

    async def apply_time_limits(self) -> None:
        """End activities after eight hours and dismiss ended ones at their dismissal time."""
        now = self._clock.seconds()
        for activity in self.running():
            if now - activity.started_at >= MAX_ACTIVE_SECONDS:
                await self.end(
                    activity,
                    dismissal_at=activity.started_at + MAX_ACTIVE_SECONDS + MAX_DISMISSAL_SECONDS,
                )
        for activity in list(self.activities.values()):
            if (
                activity.state is ActivityState.ENDED
                and activity.dismissal_at is not None
                and activity.dismissal_at <= now
            ):
                activity.state = ActivityState.DISMISSED
        dismissed = [
            key
            for key, activity in self.activities.items()
            if activity.state is ActivityState.DISMISSED
        ]
        for key in dismissed[:-MAX_DISMISSED]:
            del self.activities[key]

    async def _deliver_start(self, delivery: PushDelivery, aps: _Aps) -> None:
        if not self.is_allowed or delivery.token is None or delivery.token != self.start_token:
            self.unknown += 1
            return
        self._alert(aps)
        wants_token = bool(aps.input_push_token) or aps.input_push_channel is None
        await self._start(
            aps.attributes,
            aps.content_state,
            aps.timestamp,
            wants_token=wants_token,
            channel=aps.input_push_channel,
            stale_at=aps.stale_date,
            is_push_started=True,
        )

    async def _start(
        self,
        attributes: Mapping[str, Any],
        content: Mapping[str, Any],
        timestamp: int,
        *,
        wants_token: bool,
        channel: str | None = None,
        stale_at: int | None = None,
        is_push_started: bool = False,
    ) -> PhoneActivity:
        now = self._clock.seconds()
        activity = PhoneActivity(
            new_uuid(),
            attributes,
            content,
            timestamp,
            now,
            now,
            is_push_started,
            channel,
            stale_at=stale_at,
        )
        activity.contents.append(content)
        self.activities[activity.activity_id] = activity
        if channel is not None:
            await self._push_service.subscribe(self._device, channel)
        await self._listener(ActivityEvent.STARTED, activity)
        if wants_token and activity.state is ActivityState.ACTIVE:
            activity.token = await self._push_service.issue(self._device, TokenKind.UPDATE)
            await self._listener(ActivityEvent.TOKEN, activity)
        return activity

    async def _update(self, activity: PhoneActivity, aps: _Aps) -> None:
        if aps.timestamp < activity.timestamp:
            self.outdated += 1
            return
        activity.timestamp, activity.content, activity.stale_at = (
            aps.timestamp,
            aps.content_state,
            aps.stale_date,
        )
        activity.updated_at = self._clock.seconds()
        activity.contents.append(aps.content_state)
        activity.updates += 1
        self._alert(aps)
        if aps.event == "end":
            activity.is_ended_by_push = True
            latest = self._clock.seconds() + MAX_DISMISSAL_SECONDS
            await self.end(
                activity,
                dismissal_at=latest
                if aps.dismissal_date is None
                else min(aps.dismissal_date, latest),
            )

    def _alert(self, aps: _Aps) -> None:
        if aps.alert is not None:
            self.alerts.append(aps.alert)
            self.alert_count += 1

    async def _release(self, activity: PhoneActivity) -> None:
        """Retire the token and unsubscribe from the channel, unless another activity uses it."""
        activity.contents = deque([activity.content])
        if activity.token is not None:
            await self._push_service.retire(activity.token)
        if activity.channel is not None and all(
            other.channel != activity.channel for other in self.running()
        ):
            await self._push_service.unsubscribe(self._device, activity.channel)


def _is_target(activity: PhoneActivity, delivery: PushDelivery) -> bool:
    if delivery.token is not None:
        return activity.token == delivery.token
    return activity.channel is not None and activity.channel == delivery.channel
