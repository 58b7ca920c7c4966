"""The register of devices: who is out there, under which name, and when it was last heard of."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.devices.model import (
    Capabilities,
    Device,
    PageKey,
    Sender,
    check_capabilities,
    check_hardware_id,
    check_text,
    check_uuid4,
    timestamp,
)
from tally.devices.repository.devices import DeviceRepository
from tally.errors import NotFound
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.ttl_cache import TTLCache

SEEN_EVERY: Final = timedelta(minutes=5)
NAME_SECONDS: Final = (
    60.0  # a new name is on readings that other servers take in so much later at most
)


@dataclass(frozen=True, slots=True)
class Registry:
    """`names` holds friendly names that were looked up a moment ago ("" for none), `noted` devices seen lately."""

    devices: DeviceRepository
    clock: Clock
    names: TTLCache[str, str]
    noted: TTLCache[str, bool]

    async def register(
        self, hardware_id: str, boot_id: str, firmware_version: str, capabilities: Capabilities
    ) -> tuple[Device, bool]:
        """The device as it stands now, and whether this was its first registration."""
        now = timestamp(self.clock.now())
        asked = Device(
            hardware_id=check_hardware_id(hardware_id),
            confirmation_id=new_uuid(),
            capabilities=check_capabilities(capabilities),
            first_registered_at=now,
            last_seen_at=now,
            last_boot_id=check_uuid4(boot_id, "boot_id"),
            firmware_version=check_text(firmware_version, "firmware_version", 64),
        )
        device = await self.devices.register(asked)
        self.noted.put(hardware_id, True)
        return device, device.confirmation_id == asked.confirmation_id

    async def get(self, hardware_id: str) -> Device:
        device = await self.devices.get(check_hardware_id(hardware_id))
        if device is None:
            raise _unknown(hardware_id)
        return device

    async def by_activity(
        self, limit: int, start: PageKey | None
    ) -> tuple[list[Device], PageKey | None]:
        return await self.devices.by_activity(limit, start)

    async def rename(self, hardware_id: str, friendly_name: str | None) -> Device:
        name = None if friendly_name is None else check_text(friendly_name, "friendly_name")
        device = await self.devices.rename(check_hardware_id(hardware_id), name)
        if device is None:
            raise _unknown(hardware_id)
        self.names.put(hardware_id, name or "")
        return device

    async def heard_of(self, sender: Sender) -> str | None:
        """Note that a board posted data, now and then, and tell the name that it has."""
        hardware_id = sender.hardware_id
        if self.noted.get(hardware_id) is None:
            await self._note(sender)
            self.noted.put(hardware_id, True)
        name = self.names.get(hardware_id)
        if name is None:
            device = await self.devices.get(hardware_id)
            name = (device.friendly_name if device else None) or ""
            self.names.put(hardware_id, name)
        return name or None

    async def _note(self, sender: Sender) -> None:
        now = self.clock.now()
        device = Device(
            hardware_id=sender.hardware_id,
            confirmation_id=new_uuid(),
            capabilities=Capabilities(),
            first_registered_at=timestamp(now),
            last_seen_at=timestamp(now),
            last_boot_id=sender.boot_id,
            firmware_version=sender.firmware_version,
        )
        await self.devices.seen(device, before=timestamp(now - SEEN_EVERY))


def _unknown(hardware_id: str) -> NotFound:
    return NotFound(f"There is no device {hardware_id}", code="device_not_found")
