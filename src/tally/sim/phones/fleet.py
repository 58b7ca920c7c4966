"""A fleet of phones whose users follow matches, quit the app, go offline or dismiss activities.

    fleet = PhoneFleet(phones, push_service, clock, random.Random(1), PhoneBehaviour())
    async with fleet.running(["match-7"]): ...

Each phone receives its deliveries in order; a slow phone does not delay the others.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tally.errors import TallyError
from tally.kit.clock import Clock
from tally.kit.tasks import cancel_all
from tally.sim.apns.devices import PushDelivery
from tally.sim.phones.activitykit import PhoneActivity
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import DevicePushService


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneBehaviour:
    """The behaviour of users: probabilities per phone and `interval` (in seconds)."""

    interval: float = 30.0
    quit_probability: float = 0.02
    offline_probability: float = 0.01
    dismiss_probability: float = 0.002
    rotate_probability: float = 0.005
    # Maximum number of concurrent launches.
    max_concurrent_launches: int = 50


@dataclass(slots=True)
class PhoneFleet:
    """The phones and their inboxes.

    Configuration, counters and running tasks of the fleet, hence more than eight fields.
    """

    phones: Sequence[VirtualPhone]
    push_service: DevicePushService
    clock: Clock
    rng: random.Random
    behaviour: PhoneBehaviour = field(default_factory=PhoneBehaviour)
    received_count: int = 0
    launched_count: int = 0
    last_error: str = ""
    _inboxes: dict[str, deque[PushDelivery]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def running_activities(self) -> list[PhoneActivity]:
        return [activity for phone in self.phones for activity in phone.activity_kit.running()]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the received pushes holds."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    @asynccontextmanager
    async def running(self, matches: Sequence[str]) -> AsyncIterator["PhoneFleet"]:
        """Launch all phones, follow a match on each, and run them until the block ends."""
        self._start(self._read_deliveries())
        self._start(self._run(matches))
        try:
            yield self
        finally:
            for phone in self.phones:
                phone.quit()
            await cancel_all(self._tasks)

    async def launch(self, matches: Sequence[str]) -> None:
        """Launch every phone and follow a random match on it."""
        slots = asyncio.Semaphore(self.behaviour.max_concurrent_launches)

        async def launch_phone(phone: VirtualPhone) -> None:
            async with slots:
                app = await phone.launch()
                if matches and not await app.follows.follow(self.rng.choice(matches)):
                    self.last_error = phone.api.last_error
                self.launched_count += 1

        await asyncio.gather(*(launch_phone(phone) for phone in self.phones))

    async def _run(self, matches: Sequence[str]) -> None:
        await self.launch(matches)
        while True:
            await self.clock.sleep(self.behaviour.interval)
            for phone in self.phones:
                await self._act(phone)

    async def _act(self, phone: VirtualPhone) -> None:
        """Random user actions on one phone for one interval."""
        behaviour, rng = self.behaviour, self.rng
        await phone.apply_time_limits()
        if not phone.api.is_online:
            await phone.set_online(is_online=True)
        elif rng.random() < behaviour.offline_probability:
            await phone.set_online(is_online=False)
        if phone.app is None:
            await phone.launch()
        elif rng.random() < behaviour.quit_probability:
            phone.quit()
        for activity in phone.activity_kit.running():
            if rng.random() < behaviour.dismiss_probability:
                await phone.swipe_away(activity.match_id)
            elif activity.token is not None and rng.random() < behaviour.rotate_probability:
                await phone.activity_kit.rotate_token(activity)

    async def _read_deliveries(self) -> None:
        by_device = {phone.device_id: phone for phone in self.phones}
        async for delivery in self.push_service.deliveries():
            phone = by_device.get(delivery.device)
            if phone is not None:
                self.received_count += 1
                self._enqueue(phone, delivery)

    def _enqueue(self, phone: VirtualPhone, delivery: PushDelivery) -> None:
        inbox = self._inboxes.get(phone.device_id)
        if inbox is None:
            self._inboxes[phone.device_id] = deque([delivery])
            self._start(self._drain(phone))
        else:
            inbox.append(delivery)

    async def _drain(self, phone: VirtualPhone) -> None:
        inbox = self._inboxes[phone.device_id]
        while inbox:
            await phone.receive(inbox.popleft())
            self._changed.set()
        del self._inboxes[phone.device_id]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TallyError):
            self.last_error = error.message
        elif error is not None:
            self.last_error = f"{type(error).__name__}: {error}"
