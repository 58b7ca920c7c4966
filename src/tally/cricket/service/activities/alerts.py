"""Telling everybody who follows a match one thing, once: on each of their devices, as a plain notification.

Each person is marked as told before anything is sent, by a conditional write, so that of several
instances one tells them: at most once. If a program dies in between, the few who were about to be
told are not; to be told twice would be worse. Who has no device yet is not marked, and is told as
soon as they have one, while it is worth telling.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from tally.cricket.model.push import Push, PushOutcome
from tally.cricket.model.records import (
    NOTIFICATION_TTL_SECONDS,
    NotificationKind,
    SentNotification,
    UserDevice,
)
from tally.cricket.repository.devices import UserDeviceRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.notifications import NotificationRepository
from tally.cricket.service.ports import PushGateway
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.ttl_cache import TTLCache

PAGE: Final = 200
TOLD_SECONDS: Final = 3_600.0
MAX_TOLD: Final = 200_000


class Message(NamedTuple):
    """What to tell, and until when it is worth telling, in epoch seconds."""

    match_id: str
    kind: NotificationKind
    payload: bytes
    expiration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """`told` remembers for a while who need not be looked up again."""

    follows: FollowRepository
    notices: NotificationRepository
    devices: UserDeviceRepository
    apns: PushGateway
    clock: Clock
    told: TTLCache[tuple[str, str, NotificationKind], bool]

    async def tell(self, message: Message) -> int:
        """Tell all followers who have not been told; how many notifications Apple has taken."""
        if not self.apns.is_configured:
            return 0
        taken = 0
        async with aclosing(self.apns.send_all(self._pushes(message))) as verdicts:
            async for push, verdict in verdicts:
                taken += verdict.is_delivered
                if verdict.outcome is PushOutcome.TOKEN_INVALID:
                    device = cast("UserDevice", push.reference)
                    await self.devices.delete(
                        device.user_id, device.device_token, self.clock.seconds()
                    )
        return taken

    async def _pushes(self, message: Message) -> AsyncGenerator[Push, None]:
        page: list[str] = []
        async with aclosing(
            self.follows.of_match(message.match_id, self.clock.seconds())
        ) as follows:
            async for follow in follows:
                if self.told.get((message.match_id, follow.user_id, message.kind)) is None:
                    page.append(follow.user_id)
                if len(page) == PAGE:
                    for push in await self._page(message, page):
                        yield push
                    page = []
        for push in await self._page(message, page):
            yield push

    async def _page(self, message: Message, user_ids: list[str]) -> list[Push]:
        found = await asyncio.gather(*(self._claim(message, user_id) for user_id in user_ids))
        return [
            Push(
                token=device.device_token,
                apns_id=new_uuid(),
                payload=message.payload,
                push_type="alert",
                expiration=message.expiration,
                collapse_id=f"{message.kind.value}-{message.match_id}"[:64],
                reference=device,
            )
            for devices in found
            for device in devices
        ]

    async def _claim(self, message: Message, user_id: str) -> list[UserDevice]:
        """The devices on which this person is to be told, by us; none if they have been told, or have no device."""
        now = self.clock.milliseconds()
        who = (message.match_id, user_id, message.kind)
        if await self.notices.was_sent(*who, now // 1000):
            self.told.put(who, True)
            return []
        devices = await self.devices.of_user(user_id, now // 1000)
        if not devices:
            return []
        notice = SentNotification(
            match_id=message.match_id,
            user_id=user_id,
            kind=message.kind,
            sent_at=now,
            expires_at=now // 1000 + NOTIFICATION_TTL_SECONDS,
        )
        is_mine = await self.notices.mark_sent(notice)
        self.told.put(who, True)
        return devices if is_mine else []
