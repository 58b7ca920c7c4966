"""One virtual phone: iOS, the app on it, and the person who holds it.

    phone = VirtualPhone("phone-1", api, AppleHere(apns.devices), clock)
    await phone.launch()
    await phone.app.follows.follow("match-7")
    await phone.receive(delivery)              # from Apple; a fleet does this for all of its phones
    phone.bell("match-7"); phone.kit.on_screen()

The app may be quit and launched again, and is woken by iOS for what happens to its activities; the
phone may lose its network.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
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
# The first versions that can start an activity by a push, and listen to a channel.
PUSH_TO_START: Final = (17, 2)


@dataclass(frozen=True, slots=True)
class CricketApp:
    """The three managers of a running app."""

    tokens: TokenManager
    lifecycle: LifecycleManager
    follows: FollowManager


@dataclass(slots=True)
class VirtualPhone:
    """`device_id` is the app's own id for this phone.

    `defaults` survive everything but a deletion of the app.
    """

    device_id: str
    api: CricketClient
    apple: DevicePushService
    clock: Clock
    os_version: str = "17.4"
    defaults: UserDefaults = field(default_factory=UserDefaults)
    retry_policy: RetryPolicy = TOKEN_RETRY_POLICY
    app: CricketApp | None = None
    kit: ActivityKit = field(init=False)
    device_token: str = ""
    notifications: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_ALERTS))
    notified: int = 0
    _work: set[asyncio.Task[None]] = field(default_factory=set)
    _mistakes: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kit = ActivityKit(self.device_id, self.apple, self.clock, self._heard)

    async def launch(self) -> CricketApp:
        """Start the app: register, catch up with what happened, tell what could not be told."""
        app = self.app or self._made()
        self.app = app
        if not self.device_token:
            await self._install()
        await self._register()
        await app.tokens.hand_in_start_token()
        await app.follows.tell_untold()
        await app.follows.refresh()
        await app.lifecycle.restore(app.follows.followed)
        return app

    def quit(self) -> None:
        """The person closes the app, or iOS does: what it was about to send is lost."""
        self.app = None
        for task in tuple(self._work):
            task.cancel()

    async def set_online(self, *, is_online: bool) -> None:
        """Take the network away, or give it back: then Apple delivers what it kept, and the app catches up."""
        self.api.is_online = is_online
        await self.apple.set_online(self.device_id, is_online=is_online)
        if is_online and self.app is not None:
            await self.launch()

    async def receive(self, delivery: PushDelivery) -> None:
        """A push has come."""
        if delivery.push_type == "alert":
            self.notifications.append(msgspec.json.decode(delivery.payload))
            self.notified += 1
        else:
            await self.kit.deliver(delivery)

    async def swipe_away(self, match_id: str) -> None:
        """The person takes an activity off the Lock Screen."""
        for activity in self.kit.running():
            if activity.match_id == match_id:
                await self.kit.dismiss(activity)

    async def pass_time(self) -> None:
        """What happens by the clock: iOS's rules, and the app's check for silent activities while it runs."""
        await self.kit.pass_time()
        if self.app is not None:
            await self.app.lifecycle.end_silent()

    def bell(self, match_id: str) -> Bell:
        app = self.app or self._made()
        return app.follows.bell(match_id)

    def shown(self, match_id: str) -> PhoneActivity | None:
        """The running activity of a match, if there is one."""
        return (self.app or self._made()).lifecycle.of(match_id)

    async def settled(self) -> None:
        """Wait until nothing that the app does in the background is under way."""
        while self._work:
            await asyncio.wait(self._work)
        if self._mistakes:
            raise self._mistakes.pop()

    async def _install(self) -> None:
        await self.apple.register(self.device_id)
        self.device_token = await self.apple.issue(self.device_id, TokenKind.DEVICE)
        if _version(self.os_version) >= PUSH_TO_START:
            await self.kit.make_start_token()

    async def _register(self) -> None:
        try:
            await self.api.register_device(
                self.device_token, self.device_id, self.os_version, APP_VERSION
            )
        except TallyError:
            return  # the API has noted it; at the next launch again, until then nobody can reach this phone

    def _made(self) -> CricketApp:
        tokens = TokenManager(
            self.api, self.kit, self.defaults, self.clock, self.device_id, self.retry_policy
        )
        lifecycle = LifecycleManager(self.kit, tokens, self.clock)
        return CricketApp(
            tokens,
            lifecycle,
            FollowManager(self.api, self.kit, lifecycle, tokens, self.defaults, self.device_id),
        )

    async def _heard(self, event: ActivityEvent, activity: PhoneActivity) -> None:
        """IOS tells the app of an activity, and wakes it for that if it does not run."""
        app = self.app or self._made()
        if event is ActivityEvent.STARTED:
            await app.lifecycle.adopt(activity)
        elif event is ActivityEvent.TOKEN:
            self._begin(self._hand_in(app, activity))
        elif event is ActivityEvent.ENDED:
            app.tokens.forget(activity.match_id)
        else:
            self._begin(app.follows.dismissed(activity))

    async def _hand_in(self, app: CricketApp, activity: PhoneActivity) -> None:
        team_id = activity.attributes.get("teamId")
        if not await app.tokens.hand_in(activity, team_id if team_id != "neutral" else None):
            await self.kit.end(activity)

    def _begin(self, work: Awaitable[None]) -> None:
        """In the background: iOS does not wait for the app's network."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        mistake = None if task.cancelled() else task.exception()
        if mistake is not None:
            self._mistakes.append(mistake)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
