"""The table `cricket-devices`: phones and tablets of users, with their push tokens.

`deviceId` identifies a device; the sort key is its token, which changes. Registration is not a
transaction: it writes the new record first and then deletes the others of the device. Two
concurrent registrations of a device therefore end with one record, never with none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import ClassVar, Final, TypeAlias

from tally.cricket.model.lifecycle import next_restarts
from tally.cricket.model.records import UserDevice, has_expired
from tally.cricket.repository.items import ItemMapper
from tally.store.access import DeleteItem, GetItem, Query, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.schema import KEYS_ONLY, Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item

CRICKET_DEVICES = Table(
    "cricket-devices",
    partition=S("userId"),
    sort=S("deviceToken"),
    indexes=tuple(
        GlobalIndex(f"{name}-index", partition=S(name), sort=S("userId"), projection=KEYS_ONLY)
        for name in ("deviceToken", "deviceId", "pushToStartToken")
    ),
    ttl="expiresAt",
    attributes=(
        Attribute("userId", "S", required=True, about="Cognito user ID"),
        Attribute("deviceToken", "S", required=True, about="APNs device token"),
        Attribute("deviceId", "S", required=True, about="does not change with the token"),
        Attribute("platform", "S", required=True),
        Attribute("createdAt", "N", required=True, about="epoch milliseconds"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute(
            "expiresAt",
            "N",
            required=True,
            about="epoch seconds, 90 days after the last registration",
        ),
        Attribute("osVersion", "S"),
        Attribute("appVersion", "S"),
        Attribute("pushToStartToken", "S", about="starts Live Activities"),
        Attribute(
            "restartedAt", "L", about="epoch milliseconds of repeated starts in the last hour"
        ),
    ),
)
_MAPPER: Final = ItemMapper(UserDevice)
# The user and the device token.
DeviceKey: TypeAlias = tuple[str, str]
# Reinstalled apps leave records behind; a registration keeps the latest ones.
MAX_REGISTERED: Final = 20
MAX_DEVICES: Final = 50


def _key(user_id: str, device_token: str) -> Item:
    return {"userId": user_id, "deviceToken": device_token}


_KEY: Final = _key(param("userId"), param("deviceToken"))
_OF_USER: Final = F("userId") == param("userId")
_HAS_RESTARTS: Final = F("restartedAt") == param("seen")


@dataclass(frozen=True, slots=True)
class UserDeviceRepository:
    """Devices by user."""

    store: Store
    tables: ClassVar = (CRICKET_DEVICES,)

    @access(
        "Get device for user",
        Query(where=_OF_USER),
        table=CRICKET_DEVICES,
        by="both",
        trigger="GET /user/device, PushNotificationService",
        frequency="Per push send / per request",
        bound=MAX_DEVICES,
    )
    async def get(self, user_id: str, now: int) -> UserDevice | None:
        """Return the first device of a user that has not expired at `now` seconds."""
        found = self.store.items(
            CRICKET_DEVICES, F("userId") == user_id, page=1, consistent=True, overflow="stop"
        )
        async for item in found:
            device = _MAPPER.to_record(item)
            if not has_expired(device.expires_at, now):
                return device
        return None

    @access(
        "Get all devices for user",
        Query(where=_OF_USER),
        table=CRICKET_DEVICES,
        by="both",
        trigger="GET /user/device, PushNotificationService, MatchOrchestrator",
        frequency="Per push send / per request",
        bound=MAX_DEVICES,
    )
    async def list_by_user(self, user_id: str, now: int) -> list[UserDevice]:
        """Return the devices of a user that have not expired, most recently used first."""
        return await self._of_user(user_id, now)

    @access(
        "Register device (upsert)",
        Query(where=_OF_USER, requests=2)
        + DeleteItem(key=_KEY, requests=MAX_DEVICES)
        + UpdateItem(key=_KEY),
        table=CRICKET_DEVICES,
        by="user",
        trigger="POST /user/device",
        frequency="On app launch",
        bound=3 * MAX_DEVICES,
    )
    async def register(self, device: UserDevice, *, is_only_one: bool) -> UserDevice:
        """Upsert a device and delete its other records, or all others with `is_only_one`."""
        now = device.updated_at // 1000
        for known in await self._of_user(device.user_id, now):
            if known.device_id == device.device_id:
                token = device.push_to_start_token or known.push_to_start_token
                restarts = device.restarted_at or known.restarted_at
                device = replace(device, push_to_start_token=token, restarted_at=restarts)
        fields = _MAPPER.to_item(device)
        actions = [
            F(name).set(value)
            for name, value in fields.items()
            if name not in {"userId", "deviceToken", "createdAt"}
        ]
        actions.append(F("createdAt").set(F("createdAt").if_not_exists(device.created_at)))
        item = await self.store.update(
            CRICKET_DEVICES, _key(device.user_id, device.device_token), *actions, returns="ALL_NEW"
        )
        for orphan in _orphans(await self._of_user(device.user_id, 0), now, is_only_one):
            await self.store.delete(CRICKET_DEVICES, _key(orphan.user_id, orphan.device_token))
        return _MAPPER.to_record(item or {})

    @access(
        "Update push-to-start token",
        GetItem(key=_KEY) + UpdateItem(key=_KEY, condition=exists("userId")),
        table=CRICKET_DEVICES,
        by="user",
        trigger="PUT /user/device/push-to-start",
        frequency="On token refresh",
    )
    async def update_push_to_start(
        self, device: UserDevice, token: str, now: int, expires_at: int
    ) -> UserDevice | None:
        """Set the token and expiry; return None if the device is not registered or has expired."""
        key = _key(device.user_id, device.device_token)
        found = await self.store.get(CRICKET_DEVICES, key, consistent=True)
        if found is None or has_expired(found["expiresAt"], now // 1000):
            return None
        actions = (
            F("pushToStartToken").set(token),
            F("updatedAt").set(now),
            F("expiresAt").set(expires_at),
        )
        try:
            item = await self.store.update(
                CRICKET_DEVICES, key, *actions, condition=exists("userId"), returns="ALL_NEW"
            )
        except ConditionFailed:
            return None
        return _MAPPER.to_record(item or {})

    @access(
        "Delete device",
        DeleteItem(key=_KEY),
        table=CRICKET_DEVICES,
        by="user",
        trigger="DELETE /user/device",
        frequency="User action",
    )
    async def delete(self, user_id: str, device_token: str, now: int) -> UserDevice | None:
        """Delete a device; return it unless it had expired."""
        item = await self.store.delete(
            CRICKET_DEVICES, _key(user_id, device_token), returns="ALL_OLD"
        )
        device = None if item is None else _MAPPER.to_record(item)
        return None if device is None or has_expired(device.expires_at, now) else device

    @access(
        "Forget push-to-start token",
        UpdateItem(key=_KEY, condition=F("pushToStartToken") == param("rejected")),
        table=CRICKET_DEVICES,
        by="system",
        trigger="A push-to-start that APNs rejects for its token",
        frequency="Rare",
    )
    async def remove_push_to_start(self, device: UserDevice) -> bool:
        """Remove a token that APNs rejected, unless the device has registered another one."""
        is_same = F("pushToStartToken") == device.push_to_start_token
        key = _key(device.user_id, device.device_token)
        try:
            await self.store.update(
                CRICKET_DEVICES, key, F("pushToStartToken").remove(), condition=is_same
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Get owners of device token",
        Query(where=F("deviceToken") == param("token"), index="deviceToken-index"),
        table=CRICKET_DEVICES,
        by="user",
        trigger="POST /user/device",
        frequency="On app launch",
        bound=MAX_DEVICES,
    )
    async def owners_of_token(self, device_token: str) -> set[DeviceKey]:
        """Return the records with a device token, of all users."""
        return await self._owners("deviceToken", device_token)

    @access(
        "Get owners of device ID",
        Query(where=F("deviceId") == param("id"), index="deviceId-index"),
        table=CRICKET_DEVICES,
        by="user",
        trigger="POST /user/device",
        frequency="On app launch",
        bound=MAX_DEVICES,
    )
    async def owners_of_id(self, device_id: str) -> set[DeviceKey]:
        """Return the records with a device ID, of all users."""
        return await self._owners("deviceId", device_id)

    @access(
        "Get owners of push-to-start token",
        Query(where=F("pushToStartToken") == param("token"), index="pushToStartToken-index"),
        table=CRICKET_DEVICES,
        by="user",
        trigger="PUT /user/device/push-to-start",
        frequency="On token refresh",
        bound=MAX_DEVICES,
    )
    async def owners_of_start_token(self, token: str) -> set[DeviceKey]:
        """Return the records with a push-to-start token, of all users."""
        return await self._owners("pushToStartToken", token)

    @access(
        "Hand over device",
        DeleteItem(key=_KEY, condition=F("updatedAt") <= param("before")),
        table=CRICKET_DEVICES,
        by="user",
        trigger="POST /user/device, PUT /user/device/push-to-start, by another user",
        frequency="When another user signs in on a device",
    )
    async def hand_over(self, key: DeviceKey, before: int) -> UserDevice | None:
        """Delete the record of a previous owner; return it, or None if it was used since."""
        try:
            item = await self.store.delete(
                CRICKET_DEVICES,
                _key(*key),
                condition=F("updatedAt") <= before,
                returns="ALL_OLD",
            )
        except ConditionFailed:
            return None
        return None if item is None else _MAPPER.to_record(item)

    @access(
        "Claim restart on device",
        UpdateItem(
            key=_KEY,
            condition=(
                exists("userId") & _HAS_RESTARTS,
                exists("userId") & (_HAS_RESTARTS | not_exists("restartedAt")),
            ),
        ),
        table=CRICKET_DEVICES,
        by="system",
        trigger="MatchOrchestrator",
        frequency="At most three per hour and device",
    )
    async def claim_restart(self, device: UserDevice, now: int) -> bool:
        """Claim one of the hour's restarts; return False if none is left or the device changed."""
        restarts = next_restarts(device.restarted_at, now)
        if restarts is None:
            return False
        is_same: Condition = F("restartedAt") == list(device.restarted_at)
        if not device.restarted_at:
            is_same |= not_exists("restartedAt")
        try:
            await self.store.update(
                CRICKET_DEVICES,
                _key(device.user_id, device.device_token),
                F("restartedAt").set(list(restarts)),
                condition=exists("userId") & is_same,
            )
        except ConditionFailed:
            return False
        return True

    async def _owners(self, name: str, value: str) -> set[DeviceKey]:
        items = self.store.items(
            CRICKET_DEVICES,
            F(name) == value,
            index=f"{name}-index",
            bound=MAX_DEVICES,
            overflow="stop",
        )
        return {(str(item["userId"]), str(item["deviceToken"])) async for item in items}

    async def _of_user(self, user_id: str, now: int) -> list[UserDevice]:
        items = self.store.items(
            CRICKET_DEVICES,
            F("userId") == user_id,
            consistent=True,
            bound=MAX_DEVICES,
            overflow="stop",
        )
        found = [_MAPPER.to_record(item) async for item in items]
        alive = [device for device in found if not has_expired(device.expires_at, now)]
        return sorted(alive, key=attrgetter("updated_at", "device_token"), reverse=True)


def _orphans(devices: Iterable[UserDevice], now: int, is_only_one: bool) -> list[UserDevice]:
    """Return expired records, all but the latest of a device (or user), and those over the limit.

    `devices` is sorted with the latest first.
    """
    retained: set[str] = set()
    orphans: list[UserDevice] = []
    for device in devices:
        group = "" if is_only_one else device.device_id
        is_excess = group in retained or len(retained) == MAX_REGISTERED
        if has_expired(device.expires_at, now) or is_excess:
            orphans.append(device)
        else:
            retained.add(group)
    return orphans
