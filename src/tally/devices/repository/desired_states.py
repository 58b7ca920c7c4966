"""The table `device_desired_states`: what operators want boards to be, and what boards report."""

from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from tally.devices.model.fleet import DesiredState
from tally.store.access import GetItem, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

DEVICE_DESIRED_STATES = Table(
    "device_desired_states",
    partition=S("hardware_id"),
    attributes=(
        Attribute("hardware_id", "S", required=True, about="MAC address"),
        Attribute("version", "N", required=True, about="increases with every desired state"),
        Attribute("state", "S", required=True, about="JSON, at most 4 KB"),
        Attribute("updated_at", "S", required=True, about="RFC 3339"),
        Attribute("reported_version", "N", about="the version that the board has applied"),
        Attribute("reported_at", "S", about="RFC 3339"),
    ),
)
_KEY: Final = {"hardware_id": param("hardwareId")}


@dataclass(frozen=True, slots=True)
class DesiredStateRepository:
    """Desired states by device."""

    store: Store
    tables: ClassVar = (DEVICE_DESIRED_STATES,)

    @access(
        "Get desired state",
        GetItem(key=_KEY),
        table=DEVICE_DESIRED_STATES,
        by="both",
        trigger="GET /devices/{hardware_id}/desired-state, POST /register, POST /data",
        frequency="Once a minute per board at most, and while a board has to apply a state",
    )
    async def get(self, hardware_id: str) -> DesiredState | None:
        key = {"hardware_id": hardware_id}
        item = await self.store.get(DEVICE_DESIRED_STATES, key, consistent=True)
        return None if item is None else msgspec.convert(item, DesiredState)

    @access(
        "Store desired state",
        UpdateItem(key=_KEY, condition=(F("version") == param("version"), not_exists("version"))),
        table=DEVICE_DESIRED_STATES,
        by="user",
        trigger="PUT /devices/{hardware_id}/desired-state",
        frequency="Rare",
    )
    async def put(self, desired: DesiredState) -> bool:
        """Store the next version; return False if it exists."""
        previous = desired.version - 1
        condition: Condition = F("version") == previous if previous else not_exists("version")
        try:
            await self.store.update(
                DEVICE_DESIRED_STATES,
                {"hardware_id": desired.hardware_id},
                F("version").set(desired.version),
                F("state").set(desired.state),
                F("updated_at").set(desired.updated_at),
                condition=condition,
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Record reported state",
        UpdateItem(key=_KEY, condition=exists("version")),
        table=DEVICE_DESIRED_STATES,
        by="user",
        trigger="POST /register, POST /data",
        frequency="When a board reports another version",
    )
    async def report(self, hardware_id: str, version: int, reported_at: str) -> None:
        """Record the version that a board reports; boards without a desired state have none."""
        try:
            await self.store.update(
                DEVICE_DESIRED_STATES,
                {"hardware_id": hardware_id},
                F("reported_version").set(version),
                F("reported_at").set(reported_at),
                condition=exists("version"),
            )
        except ConditionFailed:
            return
