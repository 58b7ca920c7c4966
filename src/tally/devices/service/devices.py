"""Devices: registration, friendly names and last activity."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from tally.devices.model.records import DAY_MS, Capabilities, Device, PageKey, Sender
from tally.devices.model.validation import (
    check_capabilities,
    check_hardware_id,
    check_text,
    check_uuid4,
)
from tally.devices.repository.devices import DeviceRepository
from tally.errors import NotFound
from tally.kit.clock import Clock, rfc3339
from tally.kit.ids import new_uuid
from tally.kit.ttl_cache import TTLCache

LAST_SEEN_INTERVAL: Final = timedelta(minutes=5)
# After a rename, other servers store readings under the old name for up to this long.
NAME_CACHE_SECONDS: Final = 60.0

# After a registration, the clock is unknown until the board sends readings.
ClockState: TypeAlias = Literal["unknown", "in_time", "ahead"]


@dataclass(frozen=True, slots=True)
class FleetService:
    """Manages devices.

    `cached_names` holds friendly names, "" for none. `recently_seen` holds devices whose activity
    was recorded within `LAST_SEEN_INTERVAL`, and whether their clocks were right then.
    """

    devices: DeviceRepository
    clock: Clock
    cached_names: TTLCache[str, str]
    recently_seen: TTLCache[str, ClockState]

    async def register(
        self, hardware_id: str, boot_id: str, firmware_version: str, capabilities: Capabilities
    ) -> tuple[Device, bool]:
        """Register a board; also return whether it is new."""
        now = rfc3339(self.clock.now())
        reported = Device(
            hardware_id=check_hardware_id(hardware_id),
            confirmation_id=new_uuid(),
            capabilities=check_capabilities(capabilities),
            first_registered_at=now,
            last_seen_at=now,
            last_boot_id=check_uuid4(boot_id, "boot_id"),
            firmware_version=check_text(firmware_version, "firmware_version", 64),
        )
        device, is_new = await self.devices.register(reported)
        self.recently_seen.put(hardware_id, "unknown")
        return device, is_new

    async def get(self, hardware_id: str) -> Device:
        device = await self.devices.get(check_hardware_id(hardware_id))
        if device is None:
            raise _not_found(hardware_id)
        return device

    async def by_activity(
        self, limit: int, start: PageKey | None
    ) -> tuple[list[Device], PageKey | None]:
        return await self.devices.by_activity(limit, start)

    async def rename(self, hardware_id: str, friendly_name: str | None) -> Device:
        """Set the friendly name; None removes it."""
        name = None if friendly_name is None else check_text(friendly_name, "friendly_name")
        device = await self.devices.rename(check_hardware_id(hardware_id), name)
        if device is None:
            raise _not_found(hardware_id)
        self.cached_names.put(hardware_id, name or "")
        return device

    async def record_activity(self, sender: Sender, newest_ms: int) -> str | None:
        """Record that a board posted data, unless done recently; return its friendly name.

        `newest_ms` is the time of its newest reading, which tells how wrong its clock is.
        """
        hardware_id = sender.hardware_id
        is_ahead = newest_ms > self.clock.milliseconds() + DAY_MS
        state: ClockState = "ahead" if is_ahead else "in_time"
        known = self.recently_seen.get(hardware_id)
        if known != state:
            await self._record_seen(sender, newest_ms, is_changed=known is not None or is_ahead)
            self.recently_seen.put(hardware_id, state)
        name = self.cached_names.get(hardware_id)
        if name is None:
            device = await self.devices.get(hardware_id)
            name = (device.friendly_name if device else None) or ""
            self.cached_names.put(hardware_id, name)
        return name or None

    def forget(self, hardware_id: str) -> None:
        """Forget a deleted device, so that it is created again if it sends data."""
        self.recently_seen.remove(hardware_id)
        self.cached_names.remove(hardware_id)

    async def _record_seen(self, sender: Sender, newest_ms: int, *, is_changed: bool) -> None:
        now = self.clock.now()
        device = Device(
            hardware_id=sender.hardware_id,
            confirmation_id=new_uuid(),
            capabilities=Capabilities(),
            first_registered_at=rfc3339(now),
            last_seen_at=rfc3339(now),
            last_boot_id=sender.boot_id,
            firmware_version=sender.firmware_version,
            clock_offset_ms=newest_ms - self.clock.milliseconds(),
        )
        is_recorded = await self.devices.seen(device, before=rfc3339(now - LAST_SEEN_INTERVAL))
        if is_changed and not is_recorded:
            await self.devices.update_clock_offset(device)


def _not_found(hardware_id: str) -> NotFound:
    return NotFound(f"Device {hardware_id} does not exist", code="device_not_found")
