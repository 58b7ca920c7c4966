"""Sensors: units, ranges and precisions, for charts, exports, alarms and the console."""

from dataclasses import dataclass, field
from typing import Final

from tally.devices.model.fleet import (
    DEFAULT_SENSORS,
    MAX_SENSORS_DESCRIBED,
    SensorInfo,
    check_sensor_info,
)
from tally.devices.model.validation import NAME_RULE, are_names, invalid_field
from tally.devices.repository.sensors import SensorRepository
from tally.errors import Conflict, NotFound
from tally.kit.ttl_cache import TTLCache

# Other processes use an earlier record for up to this long.
SENSOR_CACHE_SECONDS: Final = 5.0
_ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class SensorService:
    """Describes sensors. Readings of sensors without a description are accepted, too."""

    sensors: SensorRepository
    cache: TTLCache[str, dict[str, SensorInfo]] = field(repr=False)

    async def all(self) -> dict[str, SensorInfo]:
        """Return every described sensor by name; records replace the defaults."""
        known = self.cache.get(_ALL)
        if known is None:
            stored = {info.sensor: info for info in await self.sensors.all()}
            known = dict(sorted({**DEFAULT_SENSORS, **stored}.items()))
            self.cache.put(_ALL, known)
        return known

    async def find(self, sensor: str) -> SensorInfo | None:
        return (await self.all()).get(sensor)

    async def get(self, sensor: str) -> SensorInfo:
        info = await self.find(sensor)
        if info is None:
            raise NotFound(f"Sensor {sensor} has no description", code="sensor_not_found")
        return info

    async def put(self, info: SensorInfo) -> SensorInfo:
        check_sensor_info(info)
        stored = {known.sensor for known in await self.sensors.all()}
        if info.sensor not in stored and len(stored) >= MAX_SENSORS_DESCRIBED:
            raise Conflict(
                f"At most {MAX_SENSORS_DESCRIBED} sensors may be described",
                code="too_many_sensors",
            )
        await self.sensors.put(info)
        self.cache.remove(_ALL)
        return info

    async def delete(self, sensor: str) -> None:
        """Delete a record; a sensor of the specification returns to its default."""
        if not are_names((sensor,)):
            raise invalid_field("sensor", NAME_RULE)
        await self.sensors.delete(sensor)
        self.cache.remove(_ALL)
