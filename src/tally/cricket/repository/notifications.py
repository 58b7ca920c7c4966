"""The table `cricket-prematch-notifications`: sent notifications, so that none is sent twice.

The sort key of the prematch notification is the user id; that of the toss is `{userId}#toss`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.records import (
    NotificationKind,
    SentNotification,
    has_expired,
    notification_key,
)
from tally.store.access import BatchWriteItem, GetItem, PutItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

CRICKET_PREMATCH_NOTIFICATIONS = Table(
    "cricket-prematch-notifications",
    partition=S("matchId"),
    sort=S("userId"),
    ttl="expiresAt",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute(
            "userId",
            "S",
            required=True,
            about="Cognito user ID, with the suffix #toss for the toss notification",
        ),
        Attribute("sentAt", "N", required=True, about="epoch milliseconds"),
        Attribute("expiresAt", "N", required=True, about="epoch seconds, 48 hours later"),
    ),
)

MAX_FORGOTTEN: Final = 10_000


def _key(match_id: str, user_id: str, kind: NotificationKind) -> Item:
    return {"matchId": match_id, "userId": notification_key(user_id, kind)}


_KEYS: Final = tuple(_key(param("matchId"), param("userId"), kind) for kind in NotificationKind)


@dataclass(frozen=True, slots=True)
class NotificationRepository:
    """Sent notifications by match and user."""

    store: Store
    tables: ClassVar = (CRICKET_PREMATCH_NOTIFICATIONS,)

    @access(
        "Check if notification sent",
        GetItem(key=_KEYS),
        table=CRICKET_PREMATCH_NOTIFICATIONS,
        by="system",
        trigger="PrematchNotificationJob",
        frequency="Per match approaching start",
    )
    async def was_sent(self, match_id: str, user_id: str, kind: NotificationKind, now: int) -> bool:
        item = await self.store.get(
            CRICKET_PREMATCH_NOTIFICATIONS, _key(match_id, user_id, kind), consistent=True
        )
        return item is not None and not has_expired(item["expiresAt"], now)

    @access(
        "Mark notification sent",
        PutItem(key=_KEYS, condition=not_exists("matchId") | (F("expiresAt") <= param("now"))),
        table=CRICKET_PREMATCH_NOTIFICATIONS,
        by="system",
        trigger="PrematchNotificationJob",
        frequency="Once per match",
    )
    async def mark_sent(self, notification: SentNotification) -> bool:
        """Mark as sent; return False if it was marked before. One of several callers succeeds."""
        item = _key(notification.match_id, notification.user_id, notification.kind) | {
            "sentAt": notification.sent_at,
            "expiresAt": notification.expires_at,
        }
        unmarked = not_exists("matchId") | (F("expiresAt") <= notification.sent_at // 1000)
        try:
            await self.store.put(CRICKET_PREMATCH_NOTIFICATIONS, item, condition=unmarked)
        except ConditionFailed:
            return False
        return True

    @access(
        "Forget notifications of user",
        BatchWriteItem(key=_KEYS),
        table=CRICKET_PREMATCH_NOTIFICATIONS,
        by="user",
        trigger="DELETE /user",
        frequency="User action",
        bound=MAX_FORGOTTEN,
    )
    async def remove(self, match_ids: Iterable[str], user_id: str) -> None:
        """Delete the records of a user for these matches; those of others expire."""
        keys = [
            _key(match_id, user_id, kind) for match_id in match_ids for kind in NotificationKind
        ]
        await self.store.write_many(CRICKET_PREMATCH_NOTIFICATIONS, deletes=keys)
