"""Notifies all followers of a match once, with an alert on each of their devices.

A conditional write marks each follower as notified before anything is sent, so that only one of
several instances notifies them: at most once. After a crash in between, the marked followers get no
notification, which is better than two. A follower without a device is not marked, and is notified
when they have one, while the notification is still relevant.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from tally.cricket.model.events import AlertChoice
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

PAGE_SIZE: Final = 200
NOTIFIED_CACHE_SECONDS: Final = 3_600.0
MAX_NOTIFIED_CACHED: Final = 200_000


class MatchNotification(NamedTuple):
    """A notification about a match, and the epoch second until which APNs may deliver it."""

    match_id: str
    kind: NotificationKind
    payload: bytes
    expiration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerNotifier:
    """Sends notifications to followers; `notified` caches who has been notified."""

    follows: FollowRepository
    notices: NotificationRepository
    devices: UserDeviceRepository
    apns: PushGateway
    clock: Clock
    notified: TTLCache[tuple[str, str, NotificationKind], bool]

    async def notify(self, notification: MatchNotification) -> int:
        """Notify all followers who have not been; return how many pushes APNs accepted."""
        if not self.apns.is_configured:
            return 0
        delivered = 0
        async with aclosing(self.apns.send_all(self._pushes(notification))) as results:
            async for push, result in results:
                delivered += result.is_delivered
                if result.outcome is PushOutcome.TOKEN_INVALID:
                    device = cast("UserDevice", push.reference)
                    await self.devices.delete(
                        device.user_id, device.device_token, self.clock.seconds()
                    )
        return delivered

    async def _pushes(self, notification: MatchNotification) -> AsyncGenerator[Push, None]:
        page: list[str] = []
        async with aclosing(
            self.follows.list_by_match(notification.match_id, self.clock.seconds())
        ) as follows:
            async for follow in follows:
                key = (notification.match_id, follow.user_id, notification.kind)
                is_wanted = follow.alerts is not AlertChoice.RESULT
                if is_wanted and self.notified.get(key) is None:
                    page.append(follow.user_id)
                if len(page) == PAGE_SIZE:
                    for push in await self._claim_page(notification, page):
                        yield push
                    page = []
        for push in await self._claim_page(notification, page):
            yield push

    async def _claim_page(self, notification: MatchNotification, user_ids: list[str]) -> list[Push]:
        claimed = await asyncio.gather(
            *(self._claim(notification, user_id) for user_id in user_ids)
        )
        return [
            Push(
                token=device.device_token,
                apns_id=new_uuid(),
                payload=notification.payload,
                push_type="alert",
                expiration=notification.expiration,
                collapse_id=f"{notification.kind.value}-{notification.match_id}"[:64],
                reference=device,
            )
            for devices in claimed
            for device in devices
        ]

    async def _claim(self, notification: MatchNotification, user_id: str) -> list[UserDevice]:
        """Mark a user as notified; return their devices if this instance has to notify them."""
        now = self.clock.milliseconds()
        key = (notification.match_id, user_id, notification.kind)
        if await self.notices.was_sent(*key, now // 1000):
            self.notified.put(key, True)
            return []
        devices = await self.devices.list_by_user(user_id, now // 1000)
        if not devices:
            return []
        notice = SentNotification(
            match_id=notification.match_id,
            user_id=user_id,
            kind=notification.kind,
            sent_at=now,
            expires_at=now // 1000 + NOTIFICATION_TTL_SECONDS,
        )
        is_claimed = await self.notices.mark_sent(notice)
        self.notified.put(key, True)
        return devices if is_claimed else []
