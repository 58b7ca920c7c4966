"""The table `devices`: registered boards and their last activity."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.devices.model.records import Capabilities, Device
from tally.devices.repository.device_items import (
    clock_offset,
    is_unregistered,
    registered_attributes,
)
from tally.store.access import GetItem, Query, UpdateItem, access, param
from tally.store.api import Page
from tally.store.errors import ConditionFailed
from tally.store.expressions import Action, F, exists, not_exists
from tally.store.schema import KEYS_ONLY, Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Key

ALL_DEVICES: Final = "devices"
MAX_DEVICES: Final = 10_000_000

DEVICES = Table(
    "devices",
    partition=S("hardware_id"),
    indexes=(
        GlobalIndex("gsi1", partition=S("gsi1pk"), sort=S("gsi1sk")),
        GlobalIndex("by_group", partition=S("group"), sort=S("hardware_id"), projection=KEYS_ONLY),
    ),
    attributes=(
        Attribute("hardware_id", "S", required=True, about="MAC address"),
        Attribute(
            "confirmation_id",
            "S",
            required=True,
            about="UUID v4, assigned at the first registration",
        ),
        Attribute("capabilities", "M", required=True, about="sensors and features"),
        Attribute("first_registered_at", "S", required=True, about="RFC 3339"),
        Attribute("last_seen_at", "S", required=True, about="RFC 3339"),
        Attribute("last_boot_id", "S", required=True, about="UUID v4 of the latest boot"),
        Attribute("firmware_version", "S", required=True),
        Attribute("friendly_name", "S", about="set by an operator"),
        Attribute("group", "S", about="set by an operator"),
        Attribute("tags", "L", about="names, set by an operator"),
        Attribute("is_registered", "BOOL", about="false until a board that sent data registers"),
        Attribute("clock_offset_ms", "N", about="how far the board's clock is ahead"),
        Attribute("gsi1pk", "S", required=True, about='always "devices"'),
        Attribute("gsi1sk", "S", required=True, about="equals last_seen_at"),
    ),
)


_KEY: Final = {"hardware_id": param("hardwareId")}


@dataclass(frozen=True, slots=True)
class DeviceRepository:
    """Devices by hardware id and by activity."""

    store: Store
    tables: ClassVar = (DEVICES,)

    @access(
        "Get device",
        GetItem(key=_KEY),
        table=DEVICES,
        by="both",
        trigger="GET /devices/{hardware_id}, POST /data",
        frequency="Per request, cached for seconds",
    )
    async def get(self, hardware_id: str) -> Device | None:
        item = await self.store.get(DEVICES, {"hardware_id": hardware_id})
        return None if item is None else decode_device(item)

    @access(
        "Register device",
        UpdateItem(
            key=_KEY,
            condition=(
                not_exists("last_seen_at") | (F("last_seen_at") <= param("lastSeenAt")),
                exists("hardware_id"),
            ),
            requests=2,
        ),
        table=DEVICES,
        by="user",
        trigger="POST /register",
        frequency="At every boot of a board",
    )
    async def register(self, device: Device) -> tuple[Device, bool]:
        """Create or update a device; also return whether it registers for the first time.

        Its confirmation id and the time when it was created never change.
        """
        changed = registered_attributes(device)
        key = {"hardware_id": device.hardware_id}
        actions: tuple[Action, ...] = (
            *(F(name).set(value) for name, value in changed.items()),
            F("is_registered").remove(),
            *_initial_only(device),
        )
        is_not_older = not_exists("last_seen_at") | (F("last_seen_at") <= device.last_seen_at)
        try:
            old = await self.store.update(
                DEVICES,
                key,
                *actions,
                *_last_seen(device.last_seen_at),
                condition=is_not_older,
                returns="ALL_OLD",
            )
        except ConditionFailed:
            # A server whose clock is ahead recorded a later time, which must not decrease.
            old = await self.store.update(
                DEVICES, key, *actions, condition=exists("hardware_id"), returns="ALL_OLD"
            )
            return decode_device({**(old or {}), **changed}), is_unregistered(old)
        initial = {
            **key,
            "confirmation_id": device.confirmation_id,
            "first_registered_at": device.first_registered_at,
        }
        item = {**initial, **(old or {}), **changed, "last_seen_at": device.last_seen_at}
        return decode_device(item), is_unregistered(old)

    @access(
        "Update last seen",
        UpdateItem(
            key=_KEY,
            condition=(
                exists("hardware_id") & (F("last_seen_at") <= param("before")),
                not_exists("hardware_id"),
            ),
            requests=2,
        ),
        table=DEVICES,
        by="system",
        trigger="POST /data",
        frequency="At most every 5 minutes per device",
    )
    async def seen(self, device: Device, before: str) -> bool:
        """Record activity, unless it was recorded after `before`. Creates unknown devices."""
        key = {"hardware_id": device.hardware_id}
        actions: tuple[Action, ...] = (
            F("last_boot_id").set(device.last_boot_id),
            F("firmware_version").set(device.firmware_version),
            *clock_offset(device),
            *_last_seen(device.last_seen_at),
        )
        is_due = exists("hardware_id") & (F("last_seen_at") <= before)
        try:
            await self.store.update(DEVICES, key, *actions, condition=is_due)
        except ConditionFailed as error:
            if error.item is not None:
                return False
        else:
            return True
        initial = (
            F("capabilities").set({"sensors": [], "features": {}}),
            F("is_registered").set(False),
            *_initial_only(device),
        )
        try:
            await self.store.update(
                DEVICES, key, *actions, *initial, condition=not_exists("hardware_id")
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Update clock offset",
        UpdateItem(key=_KEY, condition=exists("hardware_id")),
        table=DEVICES,
        by="system",
        trigger="POST /data",
        frequency="When the clock of a board starts or stops being wrong",
    )
    async def update_clock_offset(self, device: Device) -> None:
        with suppress(ConditionFailed):  # deleted
            await self.store.update(
                DEVICES,
                {"hardware_id": device.hardware_id},
                *clock_offset(device),
                condition=exists("hardware_id"),
            )

    @access(
        "Get group of device",
        GetItem(key=_KEY, project=("group",)),
        table=DEVICES,
        by="user",
        trigger="POST /register, POST /data",
        frequency="Per request with a key of a group, cached for seconds",
    )
    async def group_of(self, hardware_id: str) -> str | None:
        item = await self.store.get(DEVICES, {"hardware_id": hardware_id}, project=("group",))
        return None if item is None else item.get("group")

    @access(
        "Update friendly name",
        UpdateItem(key=_KEY, condition=exists("hardware_id")),
        table=DEVICES,
        by="user",
        trigger="PATCH /devices/{hardware_id}",
        frequency="Rare",
    )
    async def rename(self, hardware_id: str, friendly_name: str | None) -> Device | None:
        """Set or remove the friendly name. Return the device, or None if it does not exist."""
        action = (
            F("friendly_name").remove()
            if friendly_name is None
            else F("friendly_name").set(friendly_name)
        )
        key = {"hardware_id": hardware_id}
        try:
            item = await self.store.update(
                DEVICES, key, action, condition=exists("hardware_id"), returns="ALL_NEW"
            )
        except ConditionFailed:
            return None
        return decode_device(item or {})

    @access(
        "Update device details",
        UpdateItem(key=_KEY, condition=exists("hardware_id")),
        table=DEVICES,
        by="user",
        trigger="PATCH /devices/{hardware_id}",
        frequency="Rare",
    )
    async def describe(
        self, hardware_id: str, values: Mapping[str, str | list[str] | None]
    ) -> Device | None:
        """Set or remove attributes. Return the device, or None if it does not exist."""
        key, condition = {"hardware_id": hardware_id}, exists("hardware_id")
        try:
            item = await self.store.update(
                DEVICES, key, *detail_actions(values), condition=condition, returns="ALL_NEW"
            )
        except ConditionFailed:
            return None
        return decode_device(item or {})

    @access(
        "List devices by activity",
        Query(where=F("gsi1pk") == ALL_DEVICES, index="gsi1", forward=False),
        table=DEVICES,
        by="user",
        trigger="GET /devices",
        frequency="Per request",
    )
    async def by_activity(self, limit: int, start: Key | None) -> tuple[list[Device], Key | None]:
        """Return a page of devices, most recently seen first, and the next start key."""
        page: Page = await self.store.query(
            DEVICES,
            F("gsi1pk") == ALL_DEVICES,
            index="gsi1",
            forward=False,
            limit=limit,
            start=start,
        )
        return [decode_device(item) for item in page.items], page.next

    @access(
        "List all devices",
        Query(where=F("gsi1pk") == ALL_DEVICES, index="gsi1", project=("hardware_id",)),
        table=DEVICES,
        trigger="Stream consumers",
        frequency="While roll-ups of older readings are built",
        bound=MAX_DEVICES,
    )
    async def all_ids(self) -> AsyncGenerator[str, None]:
        """Iterate over the hardware ids of all devices, in no particular order."""
        async for item in self.store.items(
            DEVICES, F("gsi1pk") == ALL_DEVICES, index="gsi1", project=("hardware_id",)
        ):
            yield item["hardware_id"]


def _initial_only(device: Device) -> tuple[Action, ...]:
    return (
        F("confirmation_id").set(F("confirmation_id").if_not_exists(device.confirmation_id)),
        F("first_registered_at").set(
            F("first_registered_at").if_not_exists(device.first_registered_at)
        ),
        F("gsi1pk").set(ALL_DEVICES),
    )


def _last_seen(time: str) -> tuple[Action, ...]:
    return F("last_seen_at").set(time), F("gsi1sk").set(time)


def detail_actions(values: Mapping[str, str | list[str] | None]) -> tuple[Action, ...]:
    """Return the actions that set attributes, or remove those that are None."""
    return tuple(
        F(name).remove() if value is None else F(name).set(value) for name, value in values.items()
    )


def decode_device(item: Mapping[str, Any]) -> Device:
    capabilities = item["capabilities"]
    return Device(
        hardware_id=item["hardware_id"],
        confirmation_id=item["confirmation_id"],
        capabilities=Capabilities(tuple(capabilities["sensors"]), capabilities["features"]),
        first_registered_at=item["first_registered_at"],
        last_seen_at=item["last_seen_at"],
        last_boot_id=item["last_boot_id"],
        firmware_version=item["firmware_version"],
        friendly_name=item.get("friendly_name"),
        group=item.get("group"),
        tags=tuple(item.get("tags", ())),
        clock_offset_ms=item.get("clock_offset_ms"),
    )
