"""The table `device_deletions`: requests to delete devices or readings, and their progress."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.devices.model.records import Deletion
from tally.store.access import GetItem, PutItem, Query, UpdateItem, access, param
from tally.store.expressions import F, exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

ALL_DELETIONS: Final = "deletions"
OPEN: Final = "open"
MAX_OPEN_DELETIONS: Final = 100
KEPT_SECONDS: Final = 90 * 86_400

DEVICE_DELETIONS = Table(
    "device_deletions",
    partition=S("deletion_id"),
    ttl="expires_at",
    indexes=(
        GlobalIndex("by_time", partition=S("trail"), sort=S("order")),
        GlobalIndex("open", partition=S("open"), sort=S("order")),
    ),
    attributes=(
        Attribute("deletion_id", "S", required=True, about="UUID v4"),
        Attribute("hardware_id", "S", required=True, about="MAC address"),
        Attribute("kind", "S", required=True, about="device or readings"),
        Attribute("from_ms", "N", required=True, about="first time, epoch milliseconds"),
        Attribute("to_ms", "N", required=True, about="last time, epoch milliseconds"),
        Attribute("status", "S", required=True, about="pending, running or done"),
        Attribute("deleted_readings", "N", required=True, about="so far"),
        Attribute("readings_deleted_at", "N", about="when no reading was left, epoch seconds"),
        Attribute("requested_at", "S", required=True, about="RFC 3339"),
        Attribute("requested_by", "S", required=True, about="name of the operator"),
        Attribute("finished_at", "S", about="RFC 3339"),
        Attribute("trail", "S", required=True, about='always "deletions"'),
        Attribute("open", "S", about='"open" until it is done'),
        Attribute("order", "S", required=True, about="requested_at and deletion_id"),
        Attribute("expires_at", "N", about="epoch seconds, once it is done"),
    ),
)

_KEY: Final = {"deletion_id": param("deletionId")}


@dataclass(frozen=True, slots=True)
class DeviceDeletionRepository:
    """Deletions by id and time."""

    store: Store
    tables: ClassVar = (DEVICE_DELETIONS,)

    @access(
        "Request deletion",
        PutItem(key=_KEY),
        table=DEVICE_DELETIONS,
        by="user",
        trigger="DELETE /devices/{hardware_id}, DELETE /devices/{hardware_id}/readings",
        frequency="Rare",
    )
    async def create(self, deletion: Deletion) -> None:
        first, last = deletion.time_range
        item: Item = {
            "deletion_id": deletion.deletion_id,
            "hardware_id": deletion.hardware_id,
            "kind": deletion.kind,
            "from_ms": first,
            "to_ms": last,
            "status": deletion.status,
            "deleted_readings": 0,
            "requested_at": deletion.requested_at,
            "requested_by": deletion.requested_by,
            "trail": ALL_DELETIONS,
            "open": OPEN,
            "order": f"{deletion.requested_at}#{deletion.deletion_id}",
        }
        await self.store.put(DEVICE_DELETIONS, item)

    @access(
        "Get deletion",
        GetItem(key=_KEY),
        table=DEVICE_DELETIONS,
        by="user",
        trigger="GET /deletions/{deletion_id}",
        frequency="Rare",
    )
    async def get(self, deletion_id: str) -> Deletion | None:
        key = {"deletion_id": deletion_id}
        item = await self.store.get(DEVICE_DELETIONS, key, consistent=True)
        return None if item is None else _deletion(item)

    @access(
        "List deletions",
        Query(where=F("trail") == ALL_DELETIONS, index="by_time", forward=False),
        table=DEVICE_DELETIONS,
        by="user",
        trigger="GET /deletions",
        frequency="Rare",
    )
    async def newest_first(
        self, limit: int, start: Key | None
    ) -> tuple[list[Deletion], Key | None]:
        """Return a page of deletions and the start key of the next page."""
        page = await self.store.query(
            DEVICE_DELETIONS,
            F("trail") == ALL_DELETIONS,
            index="by_time",
            forward=False,
            limit=limit,
            start=start,
        )
        return [_deletion(item) for item in page.items], page.next

    @access(
        "List open deletions",
        Query(where=F("open") == OPEN, index="open", limit=MAX_OPEN_DELETIONS),
        table=DEVICE_DELETIONS,
        by="system",
        trigger="Job devices-deletions",
        frequency="Every second",
    )
    async def open_deletions(self) -> list[Deletion]:
        """Return the deletions that are not done, oldest first."""
        page = await self.store.query(
            DEVICE_DELETIONS, F("open") == OPEN, index="open", limit=MAX_OPEN_DELETIONS
        )
        return [_deletion(item) for item in page.items]

    @access(
        "Record progress of deletion",
        UpdateItem(key=_KEY, condition=exists("deletion_id")),
        table=DEVICE_DELETIONS,
        by="system",
        trigger="Job devices-deletions",
        frequency="Per 500 deleted readings",
    )
    async def record_progress(self, deletion_id: str, count: int) -> None:
        await self.store.update(
            DEVICE_DELETIONS,
            {"deletion_id": deletion_id},
            F("deleted_readings").add(count),
            F("status").set("running"),
            condition=exists("deletion_id"),
        )

    @access(
        "Record that readings are deleted",
        UpdateItem(key=_KEY, condition=exists("deletion_id")),
        table=DEVICE_DELETIONS,
        by="system",
        trigger="Job devices-deletions",
        frequency="Per deletion of a device",
    )
    async def record_readings_deleted(self, deletion_id: str, now: int) -> None:
        await self.store.update(
            DEVICE_DELETIONS,
            {"deletion_id": deletion_id},
            F("readings_deleted_at").set(now),
            condition=exists("deletion_id"),
        )

    @access(
        "Finish deletion",
        UpdateItem(key=_KEY, condition=exists("deletion_id")),
        table=DEVICE_DELETIONS,
        by="system",
        trigger="Job devices-deletions",
        frequency="Per deletion",
    )
    async def finish(self, deletion_id: str, finished_at: str, now: int) -> None:
        await self.store.update(
            DEVICE_DELETIONS,
            {"deletion_id": deletion_id},
            F("status").set("done"),
            F("finished_at").set(finished_at),
            F("expires_at").set(now + KEPT_SECONDS),
            F("open").remove(),
            condition=exists("deletion_id"),
        )


def _deletion(item: Mapping[str, Any]) -> Deletion:
    return Deletion(
        deletion_id=item["deletion_id"],
        hardware_id=item["hardware_id"],
        kind=item["kind"],
        time_range=(item["from_ms"], item["to_ms"]),
        requested_at=item["requested_at"],
        requested_by=item["requested_by"],
        status=item["status"],
        deleted_readings=item["deleted_readings"],
        readings_deleted_at=item.get("readings_deleted_at"),
        finished_at=item.get("finished_at"),
    )
