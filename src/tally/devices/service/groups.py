"""Groups and tags: what operators say about devices, and the devices of a group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tally.devices.model.fleet import check_device_tags, check_group
from tally.devices.model.records import Device, PageKey
from tally.devices.model.validation import check_hardware_id, check_text
from tally.devices.repository.groups import GroupRepository
from tally.devices.service.devices import FleetService
from tally.errors import Invalid, NotFound


@dataclass(frozen=True, slots=True)
class GroupService:
    """Describes devices and lists groups."""

    groups: GroupRepository
    devices: FleetService

    async def describe(self, hardware_id: str, changes: Mapping[str, Any]) -> Device:
        """Change friendly name, group and tags; None removes, and a missing field stays."""
        check_hardware_id(hardware_id)
        if not changes:
            raise Invalid(
                "The body must contain friendly_name, group or tags", code="missing_field"
            )
        values = _check_details(changes)
        if values.keys() == {"friendly_name"}:
            return await self.devices.rename(hardware_id, changes["friendly_name"])
        describe = self.groups.describe if "group" in values else self.devices.devices.describe
        device = await describe(hardware_id, values)
        if device is None:
            raise NotFound(f"Device {hardware_id} does not exist", code="device_not_found")
        self.devices.cached_names.put(hardware_id, device.friendly_name or "")
        return device

    async def page(
        self, group: str, limit: int, start: PageKey | None
    ) -> tuple[list[Device], PageKey | None]:
        """Return a page of the devices of a group, by hardware id."""
        ids, next_key = await self.groups.page(check_group(group), limit, start)
        found = await self.groups.get_many(ids)
        return [found[hardware_id] for hardware_id in ids if hardware_id in found], next_key


def _check_details(changes: Mapping[str, Any]) -> dict[str, str | list[str] | None]:
    values: dict[str, str | list[str] | None] = {}
    if "friendly_name" in changes:
        name = changes["friendly_name"]
        values["friendly_name"] = None if name is None else check_text(name, "friendly_name")
    if "group" in changes:
        group = changes["group"]
        values["group"] = None if group is None else check_group(group)
    if "tags" in changes:
        values["tags"] = [*check_device_tags(changes["tags"] or ())] or None
    return values
