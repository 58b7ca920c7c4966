"""Which boards an API key may be used by: all, those that it lists, or those of a group."""

from dataclasses import dataclass
from typing import Final

from tally.devices.model.records import ApiKey
from tally.devices.model.validation import check_hardware_id
from tally.devices.repository.devices import DeviceRepository
from tally.errors import Forbidden
from tally.kit.ttl_cache import TTLCache

# A board that leaves a group may use the group's key for up to this long.
GROUP_CACHE_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class KeyScopes:
    """Checks keys; `cached_groups` holds the groups of boards, "" for none."""

    devices: DeviceRepository
    cached_groups: TTLCache[str, str]

    async def require(self, key: ApiKey, hardware_id: str) -> None:
        """Raise Forbidden if the key is bound to other boards."""
        if not key.hardware_ids and key.group is None:
            return
        check_hardware_id(hardware_id)
        if hardware_id in key.hardware_ids:
            return
        if key.group is not None and await self._group(hardware_id) == key.group:
            return
        raise Forbidden(f"The API key is not for {hardware_id}", code="key_not_for_board")

    async def _group(self, hardware_id: str) -> str:
        group = self.cached_groups.get(hardware_id)
        if group is None:
            group = await self.devices.group_of(hardware_id) or ""
            # A board that is not in a group yet must not wait when it joins one.
            if group:
                self.cached_groups.put(hardware_id, group)
        return group
