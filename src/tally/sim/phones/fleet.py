"""Many phones at once: their owners follow matches, and now and then quit the app, lose the network, or swipe a match away.

    fleet = PhoneFleet(phones, apple, clock, random.Random(1), PhoneBehaviour())
    async with fleet.living(["match-7"]): ...

Deliveries are handed to each phone in their order; a phone that is slow to answer holds up no
other.
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
    """How people treat their phones: shares are of all phones in each `interval`, which is in seconds."""

    interval: float = 30.0
    quits: float = 0.02
    goes_offline: float = 0.01
    swipes_away: float = 0.002
    rotates: float = 0.005
    # How many phones are launched at the same time.
    launches: int = 50


@dataclass(slots=True)
class PhoneFleet:
    """The phones, and what has come for them."""

    phones: Sequence[VirtualPhone]
    apple: DevicePushService
    clock: Clock
    rng: random.Random
    behaviour: PhoneBehaviour = field(default_factory=PhoneBehaviour)
    received: int = 0
    launched: int = 0
    trouble: str = ""
    _inboxes: dict[str, deque[PushDelivery]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def running(self) -> list[PhoneActivity]:
        return [activity for phone in self.phones for activity in phone.kit.running()]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until what the phones have received satisfies a condition."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    @asynccontextmanager
    async def living(self, matches: Sequence[str]) -> AsyncIterator["PhoneFleet"]:
        """Launch all phones, let each follow one of the matches, and let them live until the block ends."""
        self._begin(self._read())
        self._begin(self._live(matches))
        try:
            yield self
        finally:
            for phone in self.phones:
                phone.quit()
            await cancel_all(self._tasks)

    async def launch(self, matches: Sequence[str]) -> None:
        """Launch every phone, a few at a time, and let its owner follow a match."""
        places = asyncio.Semaphore(self.behaviour.launches)

        async def one(phone: VirtualPhone) -> None:
            async with places:
                app = await phone.launch()
                if matches and not await app.follows.follow(self.rng.choice(matches)):
                    self.trouble = phone.api.last_error
                self.launched += 1

        await asyncio.gather(*(one(phone) for phone in self.phones))

    async def _live(self, matches: Sequence[str]) -> None:
        await self.launch(matches)
        while True:
            await self.clock.sleep(self.behaviour.interval)
            for phone in self.phones:
                await self._happen(phone)

    async def _happen(self, phone: VirtualPhone) -> None:
        """What an interval brings to one phone."""
        behaviour, rng = self.behaviour, self.rng
        await phone.pass_time()
        if not phone.api.is_online:
            await phone.set_online(is_online=True)
        elif rng.random() < behaviour.goes_offline:
            await phone.set_online(is_online=False)
        if phone.app is None:
            await phone.launch()
        elif rng.random() < behaviour.quits:
            phone.quit()
        for activity in phone.kit.running():
            if rng.random() < behaviour.swipes_away:
                await phone.swipe_away(activity.match_id)
            elif activity.token is not None and rng.random() < behaviour.rotates:
                await phone.kit.rotate(activity)

    async def _read(self) -> None:
        by_device = {phone.device_id: phone for phone in self.phones}
        async for delivery in self.apple.deliveries():
            phone = by_device.get(delivery.device)
            if phone is not None:
                self.received += 1
                self._put(phone, delivery)

    def _put(self, phone: VirtualPhone, delivery: PushDelivery) -> None:
        inbox = self._inboxes.get(phone.device_id)
        if inbox is None:
            self._inboxes[phone.device_id] = deque([delivery])
            self._begin(self._drain(phone))
        else:
            inbox.append(delivery)

    async def _drain(self, phone: VirtualPhone) -> None:
        inbox = self._inboxes[phone.device_id]
        while inbox:
            await phone.receive(inbox.popleft())
            self._changed.set()
        del self._inboxes[phone.device_id]

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TallyError):
            self.trouble = error.message
        elif error is not None:
            self.trouble = f"{type(error).__name__}: {error}"
