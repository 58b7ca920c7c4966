"""The table `device_rollups`: exact aggregates per device, hour and day, without expiry.

The sort key is `hour#` or `day#` and the start of the interval in 13 digits. One item holds all
sensors. The item of the consumer holds the position up to which the change log of
`device_readings` was applied, and how far the roll-ups of older readings were built; every
transaction moves the position with the roll-ups, so that each change counts once.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from tally.devices.model.rollups import Rollup, SensorRollup
from tally.devices.repository.rollup_items import (
    StateChanged,
    TransactionTooLarge,
    decode_rollup,
    encode_rollup,
    rollup_start,
)
from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Delete, Put, Update, Write
from tally.store.errors import ConditionFailed, InvalidRequest, TransactionCancelled
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

Resolution: TypeAlias = Literal["hour", "day"]
# The key of a roll-up: hardware id, resolution and start in milliseconds.
RollupKey: TypeAlias = tuple[str, Resolution, int]

DEVICE_ROLLUPS = Table(
    "device_rollups",
    partition=S("hardware_id"),
    sort=S("bucket"),
    attributes=(
        Attribute("hardware_id", "S", required=True, about='MAC address, or "*" for the consumer'),
        Attribute("bucket", "S", required=True, about="hour#{start_ms:013}, day#{start_ms:013}"),
        Attribute(
            "sensors",
            "M",
            about="by sensor, as JSON: count, exact sum, minimum, maximum, first time and value,"
            " last time and value",
        ),
        Attribute("has_omitted_sensors", "BOOL", about="set if there were over 128 sensors"),
        Attribute("position", "S", about="of the consumer: the last change that was applied"),
        Attribute("built_until", "S", about="of the consumer: {hardware_id}#{day_ms:013}, - or ~"),
    ),
)
# Sort before and after the keys of all devices.
NONE_BUILT: Final = "-"
ALL_BUILT: Final = "~"
MAX_DELETED_ROLLUPS: Final = 500  # by one call
MAX_WRITES: Final = 99  # of a transaction, beside the position
MAX_DEVICE_ROLLUPS: Final = 2_000_000  # hours and days of a hundred years
_CONSUMER_KEY: Final = {"hardware_id": "*", "bucket": "consumer"}
_KEY: Final = {
    "hardware_id": param("hardwareId"),
    "bucket": f"{param('resolution')}#{param('start')}",
}
_IS_UNCHANGED: Final = (F("position") == param("position")) & (
    F("built_until") == param("builtUntil")
)


class ConsumerState(NamedTuple):
    """How far roll-ups were computed."""

    position: str
    # Roll-ups of devices and days before this key include all readings up to the position.
    built_until: str

    def is_built(self, hardware_id: str, day_ms: int) -> bool:
        return build_key(hardware_id, day_ms) < self.built_until


class StoredRollup(NamedTuple):
    """The sensors of a device in an interval."""

    sensors: Rollup
    has_omitted: bool = False


def build_key(hardware_id: str, day_ms: int) -> str:
    return f"{hardware_id}#{day_ms:013}"


def _between(hardware_id: str, resolution: str, first: Any, last: Any) -> Condition:
    return (F("hardware_id") == hardware_id) & F("bucket").between(
        f"{resolution}#{first:013}", f"{resolution}#{last:013}"
    )


@dataclass(frozen=True, slots=True)
class RollupRepository:
    """Roll-ups by device and time, and the state of their consumer."""

    store: Store
    tables: ClassVar = (DEVICE_ROLLUPS,)

    @access(
        "Get state of roll-ups",
        GetItem(key=_CONSUMER_KEY),
        table=DEVICE_ROLLUPS,
        by="both",
        trigger="GET /devices/{hardware_id}/series, stream consumers",
        frequency="Per chart",
    )
    async def state(self) -> ConsumerState | None:
        item = await self.store.get(DEVICE_ROLLUPS, _CONSUMER_KEY, consistent=True)
        return None if item is None else ConsumerState(item["position"], item["built_until"])

    @access(
        "Start roll-ups",
        PutItem(key=_CONSUMER_KEY, condition=(not_exists("bucket"), _IS_UNCHANGED)),
        table=DEVICE_ROLLUPS,
        trigger="Stream consumers",
        frequency="Once, and after a gap in the change log",
    )
    async def start(self, previous: ConsumerState | None, position: str) -> None:
        """Build all roll-ups again from this position on, unless another consumer has started."""
        condition = not_exists("bucket") if previous is None else _is_unchanged(previous)
        item = {**_CONSUMER_KEY, "position": position, "built_until": NONE_BUILT}
        try:
            await self.store.put(DEVICE_ROLLUPS, item, condition=condition)
        except ConditionFailed as error:
            raise StateChanged from error

    @access(
        "Rebuild roll-ups",
        UpdateItem(key=_CONSUMER_KEY, condition=exists("bucket")),
        table=DEVICE_ROLLUPS,
        by="user",
        trigger="tally devices rollup --rebuild",
        frequency="Rare",
    )
    async def request_rebuild(self) -> bool:
        """Make the consumer build all roll-ups again; return False if it has never run."""
        try:
            await self.store.update(
                DEVICE_ROLLUPS,
                _CONSUMER_KEY,
                F("built_until").set(NONE_BUILT),
                condition=exists("bucket"),
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Get roll-ups by key",
        BatchGetItem(key=_KEY),
        table=DEVICE_ROLLUPS,
        trigger="Stream consumers",
        frequency="Per transaction of the consumer",
        bound=MAX_WRITES,
    )
    async def load(self, keys: Iterable[RollupKey]) -> dict[RollupKey, StoredRollup]:
        """Return the roll-ups that exist."""
        items = await self.store.get_many(DEVICE_ROLLUPS, map(_item_key, keys), consistent=True)
        return {_rollup_key(item): _stored(item) for item in items}

    @access(
        "Apply changes to roll-ups",
        TransactWriteItems(
            UpdateItem(key=_CONSUMER_KEY, condition=_IS_UNCHANGED),
            PutItem(key=_KEY, requests=MAX_WRITES).optional(),
            DeleteItem(key=_KEY, requests=MAX_WRITES).optional(),
        ),
        table=DEVICE_ROLLUPS,
        trigger="Stream consumers",
        frequency="Up to 49 devices and hours at a time",
        bound=MAX_WRITES + 1,
    )
    async def apply(
        self,
        state: ConsumerState,
        following: ConsumerState,
        changed: Mapping[RollupKey, StoredRollup],
    ) -> None:
        """Write roll-ups and the state together; roll-ups without sensors are deleted."""
        move = Update(
            DEVICE_ROLLUPS,
            _CONSUMER_KEY,
            (F("position").set(following.position), F("built_until").set(following.built_until)),
            _is_unchanged(state),
        )
        writes: list[Write] = [move]
        for key, stored in changed.items():
            if stored.sensors or stored.has_omitted:
                writes.append(Put(DEVICE_ROLLUPS, _item(key, stored)))
            else:
                writes.append(Delete(DEVICE_ROLLUPS, _item_key(key)))
        try:
            await self.store.transact(writes)
        except TransactionCancelled as error:
            if error.reasons[0].condition_failed:
                raise StateChanged from error
            raise
        except InvalidRequest as error:
            raise TransactionTooLarge from error

    @access(
        "Roll-ups by time range",
        Query(where=_between(param("hardwareId"), param("resolution"), param("from"), param("to"))),
        table=DEVICE_ROLLUPS,
        trigger="Stream consumers",
        frequency="While roll-ups of older readings are built, and per deleted extreme",
        bound=MAX_DEVICE_ROLLUPS,
    )
    async def between(
        self, hardware_id: str, resolution: Resolution, time_range: tuple[int, int]
    ) -> dict[int, StoredRollup]:
        """Return the roll-ups that start in an inclusive range, by their start."""
        where = _between(hardware_id, resolution, *time_range)
        items = self.store.items(DEVICE_ROLLUPS, where, consistent=True)
        return {_rollup_key(item)[2]: _stored(item) async for item in items}

    @access(
        "Roll-ups of one sensor",
        Query(
            where=_between(param("hardwareId"), param("resolution"), param("from"), param("to")),
            project=(F("bucket"), F("has_omitted_sensors"), F("sensors", f"{param('sensor')}")),
        ),
        table=DEVICE_ROLLUPS,
        by="user",
        trigger="GET /devices/{hardware_id}/series",
        frequency="Per chart",
        bound=MAX_DEVICE_ROLLUPS,
    )
    async def of_sensor(
        self, hardware_id: str, sensor: str, resolution: Resolution, time_range: tuple[int, int]
    ) -> AsyncGenerator[tuple[int, SensorRollup | None, bool], None]:
        """Iterate over start, roll-up of the sensor, and whether sensors were omitted."""
        projection = (F("bucket"), F("has_omitted_sensors"), F("sensors", sensor))
        where = _between(hardware_id, resolution, *time_range)
        async for item in self.store.items(
            DEVICE_ROLLUPS, where, project=projection, page=500, consistent=True
        ):
            entry = item.get("sensors", {}).get(sensor)
            rollup = None if entry is None else decode_rollup(entry)
            yield rollup_start(item), rollup, "has_omitted_sensors" in item

    @access(
        "Delete roll-ups of device",
        Query(where=F("hardware_id") == param("hardwareId"), project=("hardware_id", "bucket"))
        + BatchWriteItem(key={"hardware_id": param("hardwareId"), "bucket": param("bucket")}),
        table=DEVICE_ROLLUPS,
        trigger="Job devices-deletions",
        frequency="Per 500 roll-ups of a deleted device",
        bound=MAX_DELETED_ROLLUPS,
    )
    async def delete_page(self, hardware_id: str) -> int:
        """Delete a page of roll-ups; return their number."""
        page = await self.store.query(
            DEVICE_ROLLUPS,
            F("hardware_id") == hardware_id,
            project=("hardware_id", "bucket"),
            limit=MAX_DELETED_ROLLUPS,
            consistent=True,
        )
        await self.store.write_many(DEVICE_ROLLUPS, deletes=page.items)
        return len(page.items)


def _is_unchanged(state: ConsumerState) -> Condition:
    return (F("position") == state.position) & (F("built_until") == state.built_until)


def _item_key(key: RollupKey) -> Key:
    hardware_id, resolution, start = key
    return {"hardware_id": hardware_id, "bucket": f"{resolution}#{start:013}"}


def _rollup_key(item: Item) -> RollupKey:
    resolution, start = item["bucket"].split("#")
    return item["hardware_id"], resolution, int(start)


def _item(key: RollupKey, stored: StoredRollup) -> Item:
    sensors = {sensor: encode_rollup(rollup) for sensor, rollup in stored.sensors.items()}
    omitted = {"has_omitted_sensors": True} if stored.has_omitted else {}
    return {**_item_key(key), "sensors": sensors, **omitted}


def _stored(item: Item) -> StoredRollup:
    sensors = {sensor: decode_rollup(entry) for sensor, entry in item["sensors"].items()}
    return StoredRollup(sensors, item.get("has_omitted_sensors", False))
