"""The end of a device: its record, desired state and alarms, in one transaction.

It increments the revision of alarm rules. An evaluation that knows the device fails from then on,
and reads the devices again.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from tally.devices.model.alarms import MAX_ALARM_RULES, AlarmEntry, BoardMemory
from tally.devices.repository.alarm_rules import (
    DEVICE_ALARM_RULES,
    REVISION_KEY,
    increment_revision,
)
from tally.devices.repository.alarms import (
    ALARM_KEY,
    DEVICE_ALARM_BOARDS,
    DEVICE_ALARMS,
    remove_board,
)
from tally.devices.repository.desired_states import DEVICE_DESIRED_STATES
from tally.devices.repository.devices import DEVICES
from tally.store.access import DeleteItem, TransactWriteItems, UpdateItem, access, param
from tally.store.api import Delete, Write
from tally.store.errors import TransactionCancelled
from tally.store.expressions import F, exists, not_exists
from tally.store.store import Store

_KEY: Final = {"hardware_id": param("hardwareId")}
# The record, the desired state, the revision, the memory, and an alarm per rule.
MAX_REMOVAL_WRITES: Final = 4 + MAX_ALARM_RULES


@dataclass(frozen=True, slots=True)
class DeviceRemovalRepository:
    """Removes devices."""

    store: Store
    tables: ClassVar = ()
    writes: ClassVar = (
        DEVICES,
        DEVICE_DESIRED_STATES,
        DEVICE_ALARM_RULES,
        DEVICE_ALARM_BOARDS,
        DEVICE_ALARMS,
    )

    @access(
        "Delete device",
        TransactWriteItems(
            DeleteItem(key=_KEY),
            DeleteItem(key=_KEY, table=DEVICE_DESIRED_STATES),
            UpdateItem(key=REVISION_KEY, table=DEVICE_ALARM_RULES),
            DeleteItem(
                key=_KEY,
                condition=(
                    F("rules") == param("rules"),
                    not_exists("rules") | (F("rules") == param("none")),
                ),
                table=DEVICE_ALARM_BOARDS,
            ),
            UpdateItem(
                key=ALARM_KEY,
                condition=exists("alarm_id"),
                requests=MAX_ALARM_RULES,
                table=DEVICE_ALARMS,
            ).optional(),
        ),
        table=DEVICES,
        tables=(DEVICE_DESIRED_STATES, DEVICE_ALARM_RULES, DEVICE_ALARM_BOARDS, DEVICE_ALARMS),
        by="both",
        trigger="Job devices-deletions",
        frequency="Per deleted device",
        bound=MAX_REMOVAL_WRITES,
    )
    async def delete(self, memory: BoardMemory, cleared: AlarmEntry, now: int) -> bool:
        """Delete everything but readings and roll-ups; return False if the memory has changed."""
        key = {"hardware_id": memory.hardware_id}
        writes: list[Write] = [
            Delete(DEVICES, key),
            Delete(DEVICE_DESIRED_STATES, key),
            increment_revision(),
            *remove_board(memory, cleared, now),
        ]
        if len(writes) > MAX_REMOVAL_WRITES:  # alarms of deleted rules, which are cleared soon
            return False
        try:
            await self.store.transact(writes)
        except TransactionCancelled:
            return False
        return True
