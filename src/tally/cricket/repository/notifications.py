"""The table `cricket-prematch-notifications`: sent notifications, so that none is sent twice.

The sort key of the prematch notification is the user id; that of the toss is `{userId}#toss`.
"""

from dataclasses import dataclass
from typing import ClassVar

from tally.cricket.model.records import (
    NotificationKind,
    SentNotification,
    has_expired,
    notification_key,
)
from tally.store.access import GetItem, PutItem, access
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


def _key(match_id: str, user_id: str, kind: NotificationKind) -> Item:
    return {"matchId": match_id, "userId": notification_key(user_id, kind)}


@dataclass(frozen=True, slots=True)
class NotificationRepository:
    """Sent notifications by match and user."""

    store: Store
    tables: ClassVar = (CRICKET_PREMATCH_NOTIFICATIONS,)

    @access(
        "Check if notification sent",
        GetItem,
        table=CRICKET_PREMATCH_NOTIFICATIONS,
        key="PK=matchId, SK=userId",
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
        PutItem,
        table=CRICKET_PREMATCH_NOTIFICATIONS,
        key="PK=matchId, SK=userId, with 48h TTL, absent or expired",
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
