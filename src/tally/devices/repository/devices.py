"""The table `devices`: who is out there, and when each was last heard of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.devices.model import Capabilities, Device
from tally.store.access import GetItem, Query, UpdateItem, access
from tally.store.api import Page
from tally.store.errors import ConditionFailed
from tally.store.expressions import Action, F, exists, not_exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Key

ALL_DEVICES: Final = "devices"

DEVICES = Table(
    "devices",
    partition=S("hardware_id"),
    indexes=(GlobalIndex("gsi1", partition=S("gsi1pk"), sort=S("gsi1sk")),),
    attributes=(
        Attribute("hardware_id", "S", required=True, about="MAC address"),
        Attribute(
            "confirmation_id", "S", required=True, about="UUID v4, given at the first registration"
        ),
        Attribute("capabilities", "M", required=True, about="sensors and features"),
        Attribute("first_registered_at", "S", required=True, about="RFC 3339"),
        Attribute("last_seen_at", "S", required=True, about="RFC 3339"),
        Attribute("last_boot_id", "S", required=True, about="UUID v4 of the latest boot"),
        Attribute("firmware_version", "S", required=True),
        Attribute("friendly_name", "S", about="given by a person"),
        Attribute("gsi1pk", "S", required=True, about='always "devices"'),
        Attribute("gsi1sk", "S", required=True, about="equals last_seen_at"),
    ),
)


@dataclass(frozen=True, slots=True)
class DeviceRepository:
    """Devices, found by hardware id or listed by activity."""

    store: Store
    tables: ClassVar = (DEVICES,)

    @access(
        "Get device",
        GetItem,
        table=DEVICES,
        key="PK=hardware_id",
        by="both",
        trigger="GET /devices/{hardware_id}, POST /data",
        frequency="Per request, cached for seconds",
    )
    async def get(self, hardware_id: str) -> Device | None:
        item = await self.store.get(DEVICES, {"hardware_id": hardware_id})
        return None if item is None else _device(item)

    @access(
        "Register device",
        UpdateItem,
        table=DEVICES,
        key="PK=hardware_id",
        by="user",
        trigger="POST /register",
        frequency="At every boot of a board",
    )
    async def register(self, device: Device) -> Device:
        """The device as it stands now: what it is changes, its confirmation id and first registration never do."""
        described = (
            F("capabilities").set(
                {
                    "sensors": list(device.capabilities.sensors),
                    "features": dict(device.capabilities.features),
                }
            ),
            F("last_boot_id").set(device.last_boot_id),
            F("firmware_version").set(device.firmware_version),
            *_first_only(device),
        )
        key = {"hardware_id": device.hardware_id}
        not_later = not_exists("last_seen_at") | (F("last_seen_at") <= device.last_seen_at)
        try:
            item = await self.store.update(
                DEVICES,
                key,
                *described,
                *_seen(device.last_seen_at),
                condition=not_later,
                returns="ALL_NEW",
            )
        except (
            ConditionFailed
        ):  # another server, a little ahead of us, saw it later: time does not go back
            item = await self.store.update(DEVICES, key, *described, returns="ALL_NEW")
        return _device(item or {})

    @access(
        "Update last seen",
        UpdateItem.conditional,
        table=DEVICES,
        key="PK=hardware_id, absent or last_seen_at <= :before",
        by="system",
        trigger="POST /data",
        frequency="At most every 5 minutes per device",
    )
    async def seen(self, device: Device, before: str) -> bool:
        """Note that a device was heard of, unless that was noted after `before`; one never heard of gets a record."""
        described = (
            F("capabilities").set(F("capabilities").if_not_exists({"sensors": [], "features": {}})),
            F("last_boot_id").set(device.last_boot_id),
            F("firmware_version").set(device.firmware_version),
        )
        not_lately = not_exists("hardware_id") | (F("last_seen_at") <= before)
        steps = (*described, *_first_only(device), *_seen(device.last_seen_at))
        try:
            await self.store.update(
                DEVICES, {"hardware_id": device.hardware_id}, *steps, condition=not_lately
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Update friendly name",
        UpdateItem.conditional,
        table=DEVICES,
        key="PK=hardware_id with attribute_exists(hardware_id)",
        by="user",
        trigger="PATCH /devices/{hardware_id}",
        frequency="Rare",
    )
    async def rename(self, hardware_id: str, friendly_name: str | None) -> Device | None:
        """The device with its new name, or None where there is no such device."""
        step = (
            F("friendly_name").remove()
            if friendly_name is None
            else F("friendly_name").set(friendly_name)
        )
        key = {"hardware_id": hardware_id}
        try:
            item = await self.store.update(
                DEVICES, key, step, condition=exists("hardware_id"), returns="ALL_NEW"
            )
        except ConditionFailed:
            return None
        return _device(item or {})

    @access(
        "List devices by activity",
        Query,
        table=DEVICES,
        index="gsi1",
        key='gsi1pk = "devices", newest first',
        by="user",
        trigger="GET /devices",
        frequency="Per request",
    )
    async def by_activity(self, limit: int, start: Key | None) -> tuple[list[Device], Key | None]:
        """A page of devices, the one heard of last first, and where the next page starts."""
        page: Page = await self.store.query(
            DEVICES,
            F("gsi1pk") == ALL_DEVICES,
            index="gsi1",
            forward=False,
            limit=limit,
            start=start,
        )
        return [_device(item) for item in page.items], page.next


def _first_only(device: Device) -> tuple[Action, ...]:
    return (
        F("confirmation_id").set(F("confirmation_id").if_not_exists(device.confirmation_id)),
        F("first_registered_at").set(
            F("first_registered_at").if_not_exists(device.first_registered_at)
        ),
        F("gsi1pk").set(ALL_DEVICES),
    )


def _seen(moment: str) -> tuple[Action, ...]:
    return F("last_seen_at").set(moment), F("gsi1sk").set(moment)


def _device(item: Mapping[str, Any]) -> Device:
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
    )
