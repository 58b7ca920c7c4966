"""Groups and tags of devices: attributes of the table `devices`, and its index `by_group`."""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from tally.devices.model.records import Device
from tally.devices.repository.devices import ALL_DEVICES, DEVICES, MAX_DEVICES, decode_device
from tally.store.access import (
    BatchGetItem,
    Query,
    access,
    param,
)
from tally.store.expressions import F
from tally.store.store import Store
from tally.store.values import Key

MAX_LISTED: Final = 1_000
_KEY: Final = {"hardware_id": param("hardwareId")}
_IN_GROUP: Final = F("group") == param("group")


class DeviceGroup(NamedTuple):
    """The group of a device, if any."""

    hardware_id: str
    group: str | None


@dataclass(frozen=True, slots=True)
class GroupRepository:
    """Devices by group."""

    store: Store
    tables: ClassVar = ()
    reads: ClassVar = (DEVICES,)

    @access(
        "List devices of group",
        Query(where=_IN_GROUP, index="by_group"),
        table=DEVICES,
        by="user",
        trigger="GET /devices?group=",
        frequency="Per request",
    )
    async def page(self, group: str, limit: int, start: Key | None) -> tuple[list[str], Key | None]:
        """Return a page of hardware ids in their order, and the next start key."""
        where = F("group") == group
        page = await self.store.query(DEVICES, where, index="by_group", limit=limit, start=start)
        return [item["hardware_id"] for item in page.items], page.next

    @access(
        "Get devices",
        BatchGetItem(key=_KEY),
        table=DEVICES,
        by="user",
        trigger="GET /devices?group=, GET /fleet/series",
        frequency="Per request",
        bound=MAX_LISTED,
    )
    async def get_many(self, hardware_ids: Iterable[str]) -> dict[str, Device]:
        """Return the devices that exist, by hardware id."""
        keys = [{"hardware_id": hardware_id} for hardware_id in hardware_ids]
        items = await self.store.get_many(DEVICES, keys, consistent=True)
        return {item["hardware_id"]: decode_device(item) for item in items}

    @access(
        "All devices of group",
        Query(where=_IN_GROUP, index="by_group"),
        table=DEVICES,
        by="user",
        trigger="GET /fleet/export, GET /fleet/series",
        frequency="Per request",
        bound=MAX_DEVICES,
    )
    async def members(self, group: str, limit: int) -> AsyncGenerator[str, None]:
        """Iterate over at most `limit` hardware ids of a group, in their order."""
        async for item in self.store.items(
            DEVICES, F("group") == group, index="by_group", bound=limit, overflow="stop"
        ):
            yield item["hardware_id"]

    @access(
        "List groups of devices",
        Query(where=F("gsi1pk") == ALL_DEVICES, index="gsi1", project=("hardware_id", "group")),
        table=DEVICES,
        trigger="Stream consumers",
        frequency="When an instance begins to evaluate alarms, and after a change of rules",
        bound=MAX_DEVICES,
    )
    async def all(self) -> AsyncGenerator[DeviceGroup, None]:
        """Iterate over all devices, in no particular order."""
        async for item in self.store.items(
            DEVICES,
            F("gsi1pk") == ALL_DEVICES,
            index="gsi1",
            project=("hardware_id", "group"),
            page=500,
        ):
            yield DeviceGroup(item["hardware_id"], item.get("group"))
