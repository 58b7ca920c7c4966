"""The table `device_sensors`: units, ranges and precisions that operators have set."""

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Final

import msgspec

from tally.devices.model.fleet import MAX_SENSORS_DESCRIBED, SensorInfo
from tally.store.access import DeleteItem, PutItem, Query, access, param
from tally.store.expressions import F
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

DEVICE_SENSORS = Table(
    "device_sensors",
    partition=S("fleet"),
    sort=S("sensor"),
    attributes=(
        Attribute("fleet", "S", required=True, about='always "sensors"'),
        Attribute("sensor", "S", required=True, about="the name in readings"),
        Attribute("unit", "S", about="for example °C"),
        Attribute("minimum", "N", about="lower end of the plausible range"),
        Attribute("maximum", "N", about="upper end of the plausible range"),
        Attribute("precision", "N", about="decimal places"),
    ),
)
SENSORS_PARTITION: Final = "sensors"
_KEY: Final = {"fleet": SENSORS_PARTITION, "sensor": param("sensor")}


@dataclass(frozen=True, slots=True)
class SensorRepository:
    """Sensors by name."""

    store: Store
    tables: ClassVar = (DEVICE_SENSORS,)

    @access(
        "List sensors",
        Query(where=F("fleet") == SENSORS_PARTITION),
        table=DEVICE_SENSORS,
        by="both",
        trigger="GET /sensors, GET /devices/{hardware_id}/series",
        frequency="Every few seconds per process at most",
        bound=MAX_SENSORS_DESCRIBED + 100,
    )
    async def all(self) -> list[SensorInfo]:
        where = F("fleet") == SENSORS_PARTITION
        found = self.store.items(DEVICE_SENSORS, where, consistent=True)
        return [msgspec.convert(item, SensorInfo) async for item in found]

    @access(
        "Store sensor",
        PutItem(key=_KEY),
        table=DEVICE_SENSORS,
        by="user",
        trigger="PUT /sensors/{sensor}",
        frequency="Rare",
    )
    async def put(self, info: SensorInfo) -> None:
        fields = msgspec.to_builtins(info, builtin_types=(Decimal,))
        known = {name: value for name, value in fields.items() if value is not None}
        known.pop("is_default")
        await self.store.put(DEVICE_SENSORS, {"fleet": SENSORS_PARTITION, **known})

    @access(
        "Delete sensor",
        DeleteItem(key=_KEY),
        table=DEVICE_SENSORS,
        by="user",
        trigger="DELETE /sensors/{sensor}",
        frequency="Rare",
    )
    async def delete(self, sensor: str) -> None:
        await self.store.delete(DEVICE_SENSORS, {"fleet": SENSORS_PARTITION, "sensor": sensor})
