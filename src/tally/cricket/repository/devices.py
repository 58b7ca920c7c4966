"""The table `cricket-devices`: phones and tablets of each person, and the tokens by which they can be reached.

A device is known by its `deviceId`; its record stands under its token, which changes. Registering
is several steps and no transaction: the record is written first, then every other one of the same
device goes, so that a device that registers twice at once ends with one record, the same for both,
and never with none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import ClassVar, Final

from tally.cricket.model.records import UserDevice, has_expired
from tally.cricket.repository.items import ItemMapper
from tally.store.access import DeleteItem, GetItem, Query, UpdateItem, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

CRICKET_DEVICES = Table(
    "cricket-devices",
    partition=S("userId"),
    sort=S("deviceToken"),
    ttl="expiresAt",
    attributes=(
        Attribute("userId", "S", required=True, about="Cognito user ID"),
        Attribute("deviceToken", "S", required=True, about="APNs device token"),
        Attribute("deviceId", "S", required=True, about="stays while tokens change"),
        Attribute("platform", "S", required=True),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute(
            "expiresAt", "N", required=True, about="epoch seconds, 90 days after the last call"
        ),
        Attribute("osVersion", "S"),
        Attribute("appVersion", "S"),
        Attribute("pushToStartToken", "S", about="starts Live Activities"),
    ),
)
_SHAPE: Final = ItemMapper(UserDevice)
# A person has a few. Reinstalled apps leave others behind: at the next registration the latest ones
# are kept.
MAX_KEPT: Final = 20
MAX_DEVICES: Final = 50


def _key(user_id: str, device_token: str) -> Item:
    return {"userId": user_id, "deviceToken": device_token}


@dataclass(frozen=True, slots=True)
class UserDeviceRepository:
    """Devices by person."""

    store: Store
    tables: ClassVar = (CRICKET_DEVICES,)

    @access(
        "Get device for user",
        Query,
        table=CRICKET_DEVICES,
        key="PK=userId, Limit: 1",
        by="both",
        trigger="GET /user/device, PushNotificationService",
        frequency="Per push send / per request",
        bound=MAX_DEVICES,
    )
    async def get(self, user_id: str, now: int) -> UserDevice | None:
        """The first device of a person that has not expired at `now` seconds."""
        found = self.store.items(
            CRICKET_DEVICES, F("userId") == user_id, page=1, consistent=True, overflow="stop"
        )
        async for item in found:
            device = _SHAPE.record(item)
            if not has_expired(device.expires_at, now):
                return device
        return None

    @access(
        "Get all devices for user",
        Query,
        table=CRICKET_DEVICES,
        key="PK=userId",
        by="both",
        trigger="GET /user/device, PushNotificationService, MatchOrchestrator",
        frequency="Per push send / per request",
        bound=MAX_DEVICES,
    )
    async def of_user(self, user_id: str, now: int) -> list[UserDevice]:
        """All devices of a person that have not expired at `now` seconds, the one heard of last first."""
        return await self._of_user(user_id, now)

    @access(
        "Register device (upsert)",
        Query + DeleteItem + UpdateItem,
        table=CRICKET_DEVICES,
        key="UpdateItem PK=userId, SK=deviceToken, then Query PK=userId to find stale records, Delete orphans",
        by="user",
        trigger="POST /user/device",
        frequency="On app launch",
        bound=3 * MAX_DEVICES,
    )
    async def register(self, device: UserDevice, *, is_only_one: bool) -> UserDevice:
        """The device as it stands now, in place of what it was under other tokens, or of all others of its owner."""
        now = device.updated_at // 1000
        before = await self._of_user(device.user_id, now)
        former = [
            each
            for each in before
            if each.device_id == device.device_id and each.push_to_start_token
        ]
        if device.push_to_start_token is None and former:
            device = replace(device, push_to_start_token=former[0].push_to_start_token)
        fields = _SHAPE.item(device)
        steps = [
            F(name).set(value)
            for name, value in fields.items()
            if name not in {"userId", "deviceToken", "createdAt"}
        ]
        steps.append(F("createdAt").set(F("createdAt").if_not_exists(device.created_at)))
        item = await self.store.update(
            CRICKET_DEVICES, _key(device.user_id, device.device_token), *steps, returns="ALL_NEW"
        )
        for orphan in _orphans(await self._of_user(device.user_id, 0), now, is_only_one):
            await self.store.delete(CRICKET_DEVICES, _key(orphan.user_id, orphan.device_token))
        return _SHAPE.record(item or {})

    @access(
        "Update push-to-start token",
        GetItem + UpdateItem,
        table=CRICKET_DEVICES,
        key="PK=userId, SK=deviceToken",
        by="user",
        trigger="PUT /user/device/push-to-start",
        frequency="On token refresh",
    )
    async def update_push_to_start(
        self, device: UserDevice, token: str, now: int, expires_at: int
    ) -> UserDevice | None:
        """The device with its new token, which lives on until `expires_at`; None where it is not there, or has expired."""
        key = _key(device.user_id, device.device_token)
        found = await self.store.get(CRICKET_DEVICES, key, consistent=True)
        if found is None or has_expired(found["expiresAt"], now // 1000):
            return None
        steps = (
            F("pushToStartToken").set(token),
            F("updatedAt").set(now),
            F("expiresAt").set(expires_at),
        )
        try:
            item = await self.store.update(
                CRICKET_DEVICES, key, *steps, condition=exists("userId"), returns="ALL_NEW"
            )
        except ConditionFailed:
            return None
        return _SHAPE.record(item or {})

    @access(
        "Delete device",
        DeleteItem,
        table=CRICKET_DEVICES,
        key="PK=userId, SK=deviceToken with ReturnValues: ALL_OLD",
        by="user",
        trigger="DELETE /user/device",
        frequency="User action",
    )
    async def delete(self, user_id: str, device_token: str, now: int) -> UserDevice | None:
        """The device that was there, if it had not expired."""
        item = await self.store.delete(
            CRICKET_DEVICES, _key(user_id, device_token), returns="ALL_OLD"
        )
        device = None if item is None else _SHAPE.record(item)
        return None if device is None or has_expired(device.expires_at, now) else device

    @access(
        "Forget push-to-start token",
        UpdateItem.conditional,
        table=CRICKET_DEVICES,
        key="PK=userId, SK=deviceToken with pushToStartToken = :refused",
        by="system",
        trigger="A push-to-start that APNs refuses for its token",
        frequency="Rare",
    )
    async def forget_push_to_start(self, device: UserDevice) -> bool:
        """Take the token away that APNs does not know, unless the device has handed in another one meanwhile."""
        is_same = F("pushToStartToken") == device.push_to_start_token
        key = _key(device.user_id, device.device_token)
        try:
            await self.store.update(
                CRICKET_DEVICES, key, F("pushToStartToken").remove(), condition=is_same
            )
        except ConditionFailed:
            return False
        return True

    async def _of_user(self, user_id: str, now: int) -> list[UserDevice]:
        items = self.store.items(
            CRICKET_DEVICES,
            F("userId") == user_id,
            consistent=True,
            bound=MAX_DEVICES,
            overflow="stop",
        )
        found = [_SHAPE.record(item) async for item in items]
        alive = [device for device in found if not has_expired(device.expires_at, now)]
        return sorted(alive, key=attrgetter("updated_at", "device_token"), reverse=True)


def _orphans(found: Iterable[UserDevice], now: int, is_only_one: bool) -> list[UserDevice]:
    """What has expired, all but the latest record of a device, or of a person, and too many.

    `found` has the latest first.
    """
    kept: set[str] = set()
    orphans: list[UserDevice] = []
    for each in found:
        rivals = "" if is_only_one else each.device_id
        if has_expired(each.expires_at, now) or rivals in kept or len(kept) == MAX_KEPT:
            orphans.append(each)
        else:
            kept.add(rivals)
    return orphans
