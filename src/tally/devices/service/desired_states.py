"""Desired states: what an operator wants a board to be, handed to the board until it reports it."""

from dataclasses import dataclass, field
from typing import Final

from tally.devices.model.fleet import DesiredState, check_state
from tally.devices.model.validation import check_hardware_id
from tally.devices.repository.desired_states import DesiredStateRepository
from tally.devices.repository.devices import DeviceRepository
from tally.devices.service.history import require_device
from tally.errors import Conflict, NotFound
from tally.kit.clock import Clock, rfc3339
from tally.kit.ttl_cache import TTLCache

# Other processes hand out a new state up to this long after it was stored.
VERSION_CACHE_SECONDS: Final = 60.0
_NONE: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class DesiredStateService:
    """Stores desired states. `versions` caches the desired and the reported version of boards."""

    states: DesiredStateRepository
    devices: DeviceRepository
    clock: Clock
    versions: TTLCache[str, tuple[int, int]] = field(repr=False)

    async def put(self, hardware_id: str, state: str, expected_version: int | None) -> DesiredState:
        """Store the next version of the desired state."""
        check_state(state)
        await require_device(self.devices, hardware_id)
        known = await self.states.get(hardware_id)
        version = 0 if known is None else known.version
        if expected_version not in (None, version):
            raise _conflict(hardware_id, version)
        desired = DesiredState(
            hardware_id,
            version + 1,
            state,
            rfc3339(self.clock.now()),
            0 if known is None else known.reported_version,
            None if known is None else known.reported_at,
        )
        if not await self.states.put(desired):
            raise _conflict(hardware_id, version + 1)
        self.versions.put(hardware_id, (desired.version, desired.reported_version))
        return desired

    async def get(self, hardware_id: str) -> DesiredState:
        await require_device(self.devices, check_hardware_id(hardware_id))
        desired = await self.states.get(hardware_id)
        if desired is None:
            raise NotFound(
                f"Device {hardware_id} has no desired state", code="desired_state_not_found"
            )
        return desired

    async def exchange(self, hardware_id: str, reported: int | None) -> DesiredState | None:
        """Record the version that a board reports, if any; return the state if it differs."""
        version, recorded = self.versions.get(hardware_id) or await self._read(hardware_id)
        if reported is not None and reported > version:  # stored by another process
            version, recorded = await self._read(hardware_id)
        if version == 0:
            return None
        if reported not in (None, recorded):
            await self.states.report(hardware_id, reported or 0, rfc3339(self.clock.now()))
            self.versions.put(hardware_id, (version, reported or 0))
        if reported == version:
            return None
        return await self.states.get(hardware_id)

    async def _read(self, hardware_id: str) -> tuple[int, int]:
        desired = await self.states.get(hardware_id)
        found = _NONE if desired is None else (desired.version, desired.reported_version)
        self.versions.put(hardware_id, found)
        return found


def _conflict(hardware_id: str, version: int) -> Conflict:
    return Conflict(
        f"The desired state of {hardware_id} has version {version} already",
        code="version_conflict",
        field="expected_version",
    )
