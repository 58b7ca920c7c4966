"""iOS's side of Live Activities on one phone: what ActivityKit does by itself, whether or not the app runs.

A push to the push-to-start token makes an activity; pushes to its own token, or to the channel it
listens to, change or end it. One with an older timestamp than what is shown is ignored. An activity
runs for eight hours at most, and what has ended leaves the Lock Screen at its dismissal date, or
four hours later. With permission taken away, all of them end.
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

LIFE_SECONDS: Final = 8 * 3600
LINGER_SECONDS: Final = 4 * 3600
# Of each phone: what is remembered of an activity that runs, of alerts, and of activities that are
# gone.
MAX_SEEN: Final = 20
MAX_ALERTS: Final = 50
MAX_GONE: Final = 5


class ActivityState(Enum):
    """ENDED can still be seen on the Lock Screen; DISMISSED cannot."""

    ACTIVE = "active"
    ENDED = "ended"
    DISMISSED = "dismissed"


@dataclass(slots=True, eq=False)
class PhoneActivity:
    """One Live PhoneActivity.

    Times are epoch seconds of the phone's clock; `timestamp` is that of the state it shows.
    """

    activity_id: str
    attributes: Mapping[str, Any]
    content: Mapping[str, Any]
    timestamp: int
    started_at: int
    heard_at: int
    is_push_started: bool
    channel: str | None = None
    token: str | None = None
    stale_at: int | None = None
    leaves_at: int | None = None
    state: ActivityState = ActivityState.ACTIVE
    # What a person saw, one after another, the latest last; that alone once it has ended.
    seen: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_SEEN))
    updates: int = 0

    @property
    def match_id(self) -> str:
        return str(self.attributes.get("matchId", ""))

    def is_stale(self, now: int) -> bool:
        return self.stale_at is not None and now >= self.stale_at


class ActivityEvent(Enum):
    """What the app hears of an activity when it runs, or is woken for it."""

    STARTED = "started"
    TOKEN = "token"  # noqa: S105  (a kind of event)
    ENDED = "ended"
    DISMISSED = "dismissed"


ActivityListener: TypeAlias = Callable[[ActivityEvent, PhoneActivity], Awaitable[None]]


class _Aps(msgspec.Struct, frozen=True, rename="kebab"):
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
    """The activities of the app on one phone.

    `listener` is the app; iOS wakes it for what it hears.
    """

    def __init__(
        self, device: str, apple: DevicePushService, clock: Clock, listener: ActivityListener
    ) -> None:
        self.is_allowed = True
        self.activities: dict[str, PhoneActivity] = {}
        self.start_token: str | None = None
        self.alerts: deque[Mapping[str, Any]] = deque(maxlen=MAX_ALERTS)
        self.alerted = 0
        # Pushes that came too late, for an activity that is gone, or that could not be read.
        self.outdated = self.unknown = self.unreadable = 0
        self._device = device
        self._apple = apple
        self._clock = clock
        self._listener = listener

    def running(self) -> list[PhoneActivity]:
        return [
            activity
            for activity in self.activities.values()
            if activity.state is ActivityState.ACTIVE
        ]

    def on_screen(self) -> list[PhoneActivity]:
        """What a person sees on the Lock Screen."""
        return [
            activity
            for activity in self.activities.values()
            if activity.state is not ActivityState.DISMISSED
        ]

    async def make_start_token(self) -> str:
        """A push-to-start token, as iOS hands it out after an install, and now and then a new one."""
        if self.start_token is not None:
            await self._apple.retire(self.start_token)
        self.start_token = await self._apple.issue(self._device, TokenKind.START)
        return self.start_token

    async def request(
        self, attributes: Mapping[str, Any], content: Mapping[str, Any], timestamp: int
    ) -> PhoneActivity:
        """The app itself starts one: Forbidden without permission."""
        if not self.is_allowed:
            raise Forbidden("Live Activities are switched off", code="activities_disabled")
        return await self._start(attributes, content, timestamp, wants_token=True)

    async def deliver(self, delivery: PushDelivery) -> None:
        """A push of Apple's has come."""
        try:
            aps = msgspec.json.decode(delivery.payload, type=_Body).aps
        except msgspec.DecodeError:
            self.unreadable += 1
            return
        await self.pass_time()
        if aps.event == "start":
            await self._deliver_start(delivery, aps)
            return
        told = [activity for activity in self.running() if _is_for(activity, delivery)]
        self.unknown += not told
        for activity in told:
            await self._change(activity, aps)

    async def rotate(self, activity: PhoneActivity) -> None:
        """IOS gives the activity another token; the old one is worth nothing."""
        if activity.token is not None:
            await self._apple.retire(activity.token)
        activity.token = await self._apple.issue(self._device, TokenKind.UPDATE)
        await self._listener(ActivityEvent.TOKEN, activity)

    async def end(self, activity: PhoneActivity, *, leaves_at: int | None = None) -> None:
        """It ends: at once from the Lock Screen, unless it is to stay there for a while."""
        if activity.state is not ActivityState.ACTIVE:
            return
        activity.state, activity.leaves_at = (
            ActivityState.ENDED,
            leaves_at if leaves_at is not None else self._clock.seconds(),
        )
        await self._let_go(activity)
        await self.pass_time()
        await self._listener(ActivityEvent.ENDED, activity)

    async def dismiss(self, activity: PhoneActivity) -> None:
        """The person swipes it away."""
        was_running = activity.state is ActivityState.ACTIVE
        activity.state = ActivityState.DISMISSED
        if was_running:
            await self._let_go(activity)
            await self._listener(ActivityEvent.DISMISSED, activity)

    async def allow(self, *, is_allowed: bool) -> None:
        """The person gives or takes away the permission for Live Activities."""
        self.is_allowed = is_allowed
        for activity in self.running() if not is_allowed else ():
            await self.end(activity)

    async def pass_time(self) -> None:
        """Do what iOS does by the clock: end what has run for eight hours, take away what has been shown long enough."""
        now = self._clock.seconds()
        for activity in self.running():
            if now - activity.started_at >= LIFE_SECONDS:
                await self.end(
                    activity, leaves_at=activity.started_at + LIFE_SECONDS + LINGER_SECONDS
                )
        for activity in list(self.activities.values()):
            if (
                activity.state is ActivityState.ENDED
                and activity.leaves_at is not None
                and activity.leaves_at <= now
            ):
                activity.state = ActivityState.DISMISSED
        gone = [
            key
            for key, activity in self.activities.items()
            if activity.state is ActivityState.DISMISSED
        ]
        for key in gone[:-MAX_GONE]:
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
        made = PhoneActivity(
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
        made.seen.append(content)
        self.activities[made.activity_id] = made
        if channel is not None:
            await self._apple.listen(self._device, channel)
        await self._listener(ActivityEvent.STARTED, made)
        if wants_token and made.state is ActivityState.ACTIVE:
            made.token = await self._apple.issue(self._device, TokenKind.UPDATE)
            await self._listener(ActivityEvent.TOKEN, made)
        return made

    async def _change(self, activity: PhoneActivity, aps: _Aps) -> None:
        if aps.timestamp < activity.timestamp:
            self.outdated += 1
            return
        activity.timestamp, activity.content, activity.stale_at = (
            aps.timestamp,
            aps.content_state,
            aps.stale_date,
        )
        activity.heard_at = self._clock.seconds()
        activity.seen.append(aps.content_state)
        activity.updates += 1
        self._alert(aps)
        if aps.event == "end":
            later = self._clock.seconds() + LINGER_SECONDS
            await self.end(
                activity,
                leaves_at=later if aps.dismissal_date is None else min(aps.dismissal_date, later),
            )

    def _alert(self, aps: _Aps) -> None:
        if aps.alert is not None:
            self.alerts.append(aps.alert)
            self.alerted += 1

    async def _let_go(self, activity: PhoneActivity) -> None:
        """Its token is worth nothing any more, and nobody listens to its channel, unless another activity does."""
        activity.seen = deque([activity.content])
        if activity.token is not None:
            await self._apple.retire(activity.token)
        if activity.channel is not None and all(
            other.channel != activity.channel for other in self.running()
        ):
            await self._apple.stop_listening(self._device, activity.channel)


def _is_for(activity: PhoneActivity, delivery: PushDelivery) -> bool:
    if delivery.token is not None:
        return activity.token == delivery.token
    return activity.channel is not None and activity.channel == delivery.channel
