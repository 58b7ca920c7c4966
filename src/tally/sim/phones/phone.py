"""A virtual phone: iOS, the app and the actions of its user.

phone = VirtualPhone("phone-1", api, LocalPushService(apns.devices), clock)
await phone.launch()
await phone.app.follows.follow("match-7")
await phone.receive(delivery)              # a fleet does this for its phones
phone.bell("match-7"); phone.activity_kit.on_screen()
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tally.errors import TallyError
from tally.kit.clock import Clock
from tally.kit.retry import RetryPolicy
from tally.sim.apns.devices import PushDelivery, TokenKind
from tally.sim.phones.activitykit import MAX_ALERTS, ActivityEvent, ActivityKit, PhoneActivity
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.follows import Bell, FollowManager
from tally.sim.phones.lifecycle import LifecycleManager
from tally.sim.phones.push_services import DevicePushService
from tally.sim.phones.tokens import TOKEN_RETRY_POLICY, TokenManager, UserDefaults

APP_VERSION: Final = "1.0.0"
# The first iOS version that supports push-to-start.
PUSH_TO_START: Final = (17, 2)


@dataclass(frozen=True, slots=True)
class CricketApp:
    """The three managers of a running app."""

    tokens: TokenManager
    lifecycle: LifecycleManager
    follows: FollowManager


@dataclass(slots=True)
class VirtualPhone:
    """A phone. `device_id` is the app's id of it; `defaults` survive restarts of the app.

    Hardware, iOS and app state of one phone, hence more than eight fields.
    """

    device_id: str
    api: CricketClient
    push_service: DevicePushService
    clock: Clock
    os_version: str = "17.4"
    defaults: UserDefaults = field(default_factory=UserDefaults)
    retry_policy: RetryPolicy = TOKEN_RETRY_POLICY
    app: CricketApp | None = None
    activity_kit: ActivityKit = field(init=False)
    device_token: str = ""
    notifications: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_ALERTS))
    notification_count: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.activity_kit = ActivityKit(
            self.device_id, self.push_service, self.clock, self._on_activity_event
        )

    async def launch(self) -> CricketApp:
        """Start the app: register, send pending reports, refresh follows, restore activities."""
        app = self.app or self._build_app()
        self.app = app
        if not self.device_token:
            await self._install()
        await self._register_device()
        await app.tokens.register_start_token()
        await app.follows.send_pending_reports()
        await app.follows.refresh()
        await app.lifecycle.restore(app.follows.followed)
        return app

    async def sign_out(self) -> None:
        """Delete the device at the server, end all activities, and forget the user's data.

        Offline, the server learns of it when the next user registers the device.
        """
        with suppress(TallyError):
            await self.api.delete_device(self.device_id)
        self.quit()
        self.defaults.clear()
        for activity in self.activity_kit.running():
            await self.activity_kit.end(activity)

    def quit(self) -> None:
        """Quit the app; cancels its background work."""
        self.app = None
        for task in tuple(self._tasks):
            task.cancel()

    async def set_online(self, *, is_online: bool) -> None:
        """Set the phone offline or online; back online, stored pushes arrive and the app syncs."""
        self.api.is_online = is_online
        await self.push_service.set_online(self.device_id, is_online=is_online)
        if is_online and self.app is not None:
            await self.launch()

    async def receive(self, delivery: PushDelivery) -> None:
        """Receive a push."""
        if delivery.push_type == "alert":
            self.notifications.append(msgspec.json.decode(delivery.payload))
            self.notification_count += 1
        else:
            await self.activity_kit.deliver(delivery)

    async def swipe_away(self, match_id: str) -> None:
        """Swipe the activity of a match off the Lock Screen."""
        for activity in self.activity_kit.running():
            if activity.match_id == match_id:
                await self.activity_kit.dismiss(activity)

    async def apply_time_limits(self) -> None:
        """Apply the time limits of iOS and, while it runs, of the app."""
        await self.activity_kit.apply_time_limits()
        if self.app is not None:
            await self.app.lifecycle.end_stale()

    def bell(self, match_id: str) -> Bell:
        app = self.app or self._build_app()
        return app.follows.bell(match_id)

    def find_activity(self, match_id: str) -> PhoneActivity | None:
        """The running activity of a match; None if there is none."""
        return (self.app or self._build_app()).lifecycle.find(match_id)

    async def wait_idle(self) -> None:
        """Wait for the app's background work; raises its first unexpected error."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self._errors:
            raise self._errors.pop()

    async def _install(self) -> None:
        await self.push_service.register(self.device_id)
        self.device_token = await self.push_service.issue(self.device_id, TokenKind.DEVICE)
        if _version(self.os_version) >= PUSH_TO_START:
            await self.activity_kit.rotate_start_token()

    async def _register_device(self) -> None:
        try:
            await self.api.register_device(
                self.device_token, self.device_id, self.os_version, APP_VERSION
            )
        except TallyError:
            return  # the client counts the failure; the next launch tries again

    def _build_app(self) -> CricketApp:
        tokens = TokenManager(
            self.api,
            self.activity_kit,
            self.defaults,
            self.clock,
            self.device_id,
            self.retry_policy,
        )
        lifecycle = LifecycleManager(self.activity_kit, tokens, self.clock)
        return CricketApp(
            tokens,
            lifecycle,
            FollowManager(
                self.api, self.activity_kit, lifecycle, tokens, self.defaults, self.device_id
            ),
        )

    async def _on_activity_event(self, event: ActivityEvent, activity: PhoneActivity) -> None:
        """Handle an event from iOS, which wakes the app if necessary."""
        app = self.app or self._build_app()
        if event is ActivityEvent.STARTED:
            await app.lifecycle.adopt(activity)
            if activity.channel is not None:
                self._start(self._register(app, activity))
        elif event is ActivityEvent.TOKEN:
            self._start(self._register(app, activity))
        elif event is ActivityEvent.ENDED:
            if activity.is_ended_by_push or app.lifecycle.find(activity.match_id) is not None:
                app.tokens.forget(activity.match_id)
            else:
                self._start(app.tokens.report_missing(activity.match_id))
        else:
            self._start(app.follows.on_dismissed(activity))

    async def _register(self, app: CricketApp, activity: PhoneActivity) -> None:
        team_id = activity.attributes.get("teamId")
        if not await app.tokens.register(activity, team_id if team_id != "neutral" else None):
            await self.activity_kit.end(activity)

    def _start(self, work: Awaitable[None]) -> None:
        """Run in the background: iOS does not wait for the app's requests."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._errors.append(error)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
