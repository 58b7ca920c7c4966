"""Groups and tags of devices: attributes of the table `devices`, and its index `by_group`."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.devices.model.records import Device
from tally.devices.repository.alarm_rules import (
    DEVICE_ALARM_RULES,
    REVISION_KEY,
    increment_revision,
)
from tally.devices.repository.devices import (
    ALL_DEVICES,
    DEVICES,
    MAX_DEVICES,
    decode_device,
    detail_actions,
)
from tally.store.access import (
    BatchGetItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Update
from tally.store.errors import TransactionCancelled
from tally.store.expressions import F, exists
from tally.store.store import Store
from tally.store.values import Key

MAX_LISTED: Final = 1_000
_KEY: Final = {"hardware_id": param("hardwareId")}
_IN_GROUP: Final = F("group") == param("group")


@dataclass(frozen=True, slots=True)
class GroupRepository:
    """Devices by group."""

    store: Store
    tables: ClassVar = ()
    writes: ClassVar = (DEVICES, DEVICE_ALARM_RULES)

    @access(
        "Update group of device",
        TransactWriteItems(
            UpdateItem(key=_KEY, condition=exists("hardware_id")),
            UpdateItem(key=REVISION_KEY, table=DEVICE_ALARM_RULES),
        ),
        table=DEVICES,
        tables=(DEVICE_ALARM_RULES,),
        by="user",
        trigger="PATCH /devices/{hardware_id}",
        frequency="Rare",
        bound=2,
    )
    async def describe(
        self, hardware_id: str, values: Mapping[str, str | list[str] | None]
    ) -> Device | None:
        """Set or remove attributes and the group, by which alarm rules apply from then on.

        Return the device, or None if it does not exist.
        """
        key, condition = {"hardware_id": hardware_id}, exists("hardware_id")
        described = Update(DEVICES, key, detail_actions(values), condition)
        try:
            await self.store.transact([described, increment_revision()])
        except TransactionCancelled as error:
            if error.reasons[0].condition_failed:
                return None
            raise
        return (await self.get_many([hardware_id])).get(hardware_id)

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
        "List ids of devices",
        Query(where=F("gsi1pk") == ALL_DEVICES, index="gsi1", project=("hardware_id",)),
        table=DEVICES,
        trigger="Stream consumers",
        frequency="When an instance begins to evaluate alarms, and after a change of rules",
        bound=MAX_DEVICES,
    )
    async def all(self) -> AsyncGenerator[str, None]:
        """Iterate over the ids of all devices; their groups in the index may be outdated."""
        async for item in self.store.items(
            DEVICES,
            F("gsi1pk") == ALL_DEVICES,
            index="gsi1",
            project=("hardware_id",),
            page=500,
        ):
            yield item["hardware_id"]
