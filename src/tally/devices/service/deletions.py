"""Deletes devices and readings in the background: a durable request, and the job that does it.

The job deletes readings in pages and counts them. After a crash it begins again at the first
reading that is left. Roll-ups subtract deleted readings when they read the change log. When a
device is deleted, its roll-ups follow, which may include expired readings. One transaction then
deletes its record, its desired state and what alarm rules remember of it, and clears its alarms.
"""

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from tally.devices.model.alarms import AlarmEntry, BoardMemory
from tally.devices.model.records import MAX_TIMESTAMP_MS, Deletion, PageKey
from tally.devices.model.validation import check_uuid4
from tally.devices.repository.alarms import AlarmRepository
from tally.devices.repository.deletions import DeviceDeletionRepository
from tally.devices.repository.device_removal import DeviceRemovalRepository
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.measurements import ChangesLost
from tally.devices.repository.readings import ReadingRepository
from tally.devices.repository.rollup_items import StateChanged
from tally.devices.repository.rollups import ConsumerState
from tally.devices.service.devices import FleetService
from tally.devices.service.history import TimeRange, check_time_range, require_device
from tally.devices.service.rollup_builder import RollupBuilder
from tally.errors import NotFound
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.ids import new_uuid
from tally.kit.operators import Operator, OperatorDirectory, Role

# Where the store cannot tell whether roll-ups are current, they are after this time.
SETTLE_SECONDS: Final = 10
MAX_WAIT_SECONDS: Final = 8.0
POLL_SECONDS: Final = 0.02
MAX_LATE_READINGS: Final = timedelta(hours=1)

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class DeviceDeletions:
    """Accepts requests to delete, and reports their progress."""

    deletions: DeviceDeletionRepository
    devices: DeviceRepository
    clock: Clock

    async def request_device(self, hardware_id: str, operator: str) -> Deletion:
        """Request the deletion of a device with everything that it sent."""
        return await self._request(hardware_id, "device", (0, MAX_TIMESTAMP_MS), operator)

    async def request_readings(
        self, hardware_id: str, time_range: TimeRange, operator: str
    ) -> Deletion:
        """Request the deletion of the readings in an inclusive time range."""
        return await self._request(hardware_id, "readings", check_time_range(time_range), operator)

    async def _request(
        self,
        hardware_id: str,
        kind: Literal["device", "readings"],
        time_range: TimeRange,
        operator: str,
    ) -> Deletion:
        await require_device(self.devices, hardware_id)
        deletion = Deletion(
            deletion_id=new_uuid(),
            hardware_id=hardware_id,
            kind=kind,
            time_range=time_range,
            requested_at=rfc3339(self.clock.now()),
            requested_by=operator,
        )
        await self.deletions.create(deletion)
        return deletion

    async def get(self, deletion_id: str) -> Deletion:
        deletion = await self.deletions.get(check_uuid4(deletion_id, "deletion_id"))
        if deletion is None:
            raise NotFound(f"Deletion {deletion_id} does not exist", code="deletion_not_found")
        return deletion

    async def newest_first(
        self, limit: int, start: PageKey | None
    ) -> tuple[list[Deletion], PageKey | None]:
        return await self.deletions.newest_first(limit, start)


@dataclass(frozen=True, slots=True)
class DeviceDeletionWorker:
    """Carries out deletions, oldest first. The lock of its job admits one instance at a time."""

    deletions: DeviceDeletionRepository
    removal: DeviceRemovalRepository
    alarms: AlarmRepository
    fleet: FleetService
    builder: RollupBuilder
    readings: ReadingRepository
    operators: OperatorDirectory
    clock: Clock

    async def run(self) -> None:
        """Continue all open deletions; one that waits for roll-ups does not delay the others."""
        for deletion in await self.deletions.open_deletions():
            if deletion.readings_deleted_at is None:
                await self._delete_readings(deletion)
                if deletion.kind == "device":
                    now = self.clock.seconds()
                    await self.deletions.record_readings_deleted(deletion.deletion_id, now)
            if deletion.kind == "readings" or await self._delete_device(deletion):
                await self._finish(deletion)

    async def _delete_readings(self, deletion: Deletion) -> int:
        """Delete the readings in one pass and count them; those that arrive behind it stay."""
        total, start = 0, None
        while True:
            count, start = await self.readings.delete_page(
                deletion.hardware_id, deletion.time_range, start
            )
            total += count
            await self.deletions.record_progress(deletion.deletion_id, count)
            if start is None:
                return total

    async def _delete_device(self, deletion: Deletion) -> bool:
        """Delete roll-ups and the record; return False to wait until roll-ups are current.

        Readings that arrived meanwhile are deleted first, since their roll-ups would be missing.
        A board that never stops sending does not keep its record for longer than an hour.
        """
        if not await self._are_rollups_current(deletion):
            return False
        waited = self.clock.now() - datetime.fromisoformat(deletion.requested_at)
        if await self._delete_readings(deletion) and waited < MAX_LATE_READINGS:
            now = self.clock.seconds()
            await self.deletions.record_readings_deleted(deletion.deletion_id, now)
            return False
        while await self.builder.rollups.delete_page(deletion.hardware_id):
            pass
        if not await self._rebuild_rollups(deletion.hardware_id):
            return False
        if not await self._delete_record(deletion.hardware_id):
            return False
        self.fleet.forget(deletion.hardware_id)
        return True

    async def _rebuild_rollups(self, hardware_id: str) -> bool:
        """Build the roll-ups of readings that arrived while those of the device were deleted."""
        state = await self.builder.rollups.state()
        if state is None:
            return True
        try:
            await self.builder.rebuild(hardware_id, state)
        except StateChanged:
            return False
        return True

    async def _delete_record(self, hardware_id: str) -> bool:
        """Delete the record with its desired state and alarms, unless an evaluation is faster."""
        found = await self.alarms.memories([hardware_id])
        memory = found[0] if found else BoardMemory(hardware_id)
        entry = AlarmEntry("cleared", self.clock.milliseconds(), "device_deleted")
        return await self.removal.delete(memory, entry, self.clock.seconds())

    async def _are_rollups_current(self, deletion: Deletion) -> bool:
        """Whether the roll-ups include the deletions, so that none are written afterwards."""
        state = await self.builder.rollups.state()
        if state is None:
            return True
        until = await self.builder.measurements.position()
        # The time of the consumer, possibly on another instance: no test controls it.
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while is_behind := await self._is_behind(state, until):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
            state = await self.builder.rollups.state() or state
        if is_behind is not None:
            return True
        deleted_at = deletion.readings_deleted_at
        return deleted_at is not None and self.clock.seconds() >= deleted_at + SETTLE_SECONDS

    async def _is_behind(self, state: ConsumerState, until: str) -> bool | None:
        try:
            return await self.builder.measurements.has_changes(state.position, until)
        except ChangesLost:  # until the consumer notices
            return True

    async def _finish(self, deletion: Deletion) -> None:
        finished_at = rfc3339(self.clock.now())
        await self.deletions.finish(deletion.deletion_id, finished_at, self.clock.seconds())
        found = await self.deletions.get(deletion.deletion_id) or deletion
        target = f"{deletion.kind} of {deletion.hardware_id}"
        operator = Operator(deletion.requested_by, Role.OPERATOR)
        async with self.operators.recording(
            operator,
            "devices deletion",
            target,
            deletion_id=deletion.deletion_id,
            deleted_readings=found.deleted_readings,
        ):
            pass
        _log.info(
            "Device deletion finished",
            action="device_deletion_finished",
            hardware_id=deletion.hardware_id,
            kind=deletion.kind,
            deleted_readings=found.deleted_readings,
        )
