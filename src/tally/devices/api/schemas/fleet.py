"""Bodies and queries of sensors, groups, desired states and fleet queries."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import msgspec

from tally.devices.api.schemas import fields
from tally.devices.api.schemas.requests import Limit, Milliseconds
from tally.devices.api.schemas.responses import (
    ReadingBody,
    SensorBody,
    json_number,
    reading_body,
    sensor_body,
)
from tally.devices.model.fleet import MAX_PRECISION, MAX_STATE_BYTES, DesiredState, SensorInfo
from tally.devices.model.fleet_series import AlignedSeries, LatestReading
from tally.devices.model.records import Bucket, Number
from tally.kit.body import StrictStruct

_MAX_VALUE: Final = 10**15

# Numbers of operators: rules and ranges need no more digits than a double has.
_IN_RANGE: Final = msgspec.Meta(ge=-_MAX_VALUE, le=_MAX_VALUE)
Value = Annotated[int, _IN_RANGE] | Annotated[float, _IN_RANGE]
Group = fields.GroupName
SensorName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
Points = Annotated[int, msgspec.Meta(ge=1, le=500)]


class DeviceChangesBody(StrictStruct, frozen=True):
    """At least one of the fields; null removes it."""

    friendly_name: fields.FriendlyName | msgspec.UnsetType | None = msgspec.UNSET
    group: Group | msgspec.UnsetType | None = msgspec.UNSET
    tags: list[fields.Name] | msgspec.UnsetType | None = msgspec.UNSET

    def changes(self) -> Mapping[str, Any]:
        named = {"friendly_name": self.friendly_name, "group": self.group, "tags": self.tags}
        return {name: value for name, value in named.items() if value is not msgspec.UNSET}


class SensorInfoBody(StrictStruct, frozen=True):
    """Unit, plausible range and decimal places of a sensor."""

    unit: Annotated[str, msgspec.Meta(min_length=1, max_length=32)] | None = None
    minimum: Value | None = None
    maximum: Value | None = None
    precision: Annotated[int, msgspec.Meta(ge=0, le=MAX_PRECISION)] | None = None

    def info(self, sensor: str) -> SensorInfo:
        return SensorInfo(
            sensor, self.unit, to_number(self.minimum), to_number(self.maximum), self.precision
        )


class SensorPage(msgspec.Struct, frozen=True):
    items: list[SensorBody]
    next_cursor: str | None


class NewStateBody(StrictStruct, frozen=True):
    """A desired state of at most 4 KB.

    With `expected_version`, it is stored only if the present version is this one (0: none).
    """

    state: fields.JsonObject
    expected_version: fields.StateVersion | None = None


class ParsedState(StrictStruct, frozen=True):
    """A `NewStateBody` whose state is checked to be an object."""

    state: dict[str, Any]
    expected_version: fields.StateVersion | None = None


class DesiredStateBody(msgspec.Struct, frozen=True):
    """The desired state, and the version that the board has reported (0: none)."""

    hardware_id: str
    version: int
    state: fields.JsonObject
    updated_at: str
    reported_version: int
    reported_at: str | None
    is_applied: bool


class EmptyQuery(StrictStruct, frozen=True):
    """No parameters."""


class LatestQuery(StrictStruct, frozen=True):
    group: Group | None = None
    limit: Limit = 50
    cursor: str | None = None


class MetricsQuery(StrictStruct, frozen=True):
    group: Group | None = None


class FleetSeriesQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    group: Group
    sensor: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    first: Milliseconds
    last: Milliseconds
    points: Points = 100


class FleetExportQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    group: Group
    format: Literal["csv", "ndjson", "parquet"] = "csv"
    first: Milliseconds = 0
    last: Milliseconds = 4_102_444_800_000
    units: bool = False


class LatestBody(msgspec.Struct, frozen=True):
    hardware_id: str
    friendly_name: str | None
    group: str | None
    reading: ReadingBody | None


class LatestPage(msgspec.Struct, frozen=True):
    items: list[LatestBody]
    next_cursor: str | None


class BoardSeriesBody(msgspec.Struct, frozen=True):
    """One board: an entry per interval, null without a value."""

    hardware_id: str
    friendly_name: str | None
    counts: list[int]
    minima: list[int | float | None]
    maxima: list[int | float | None]
    means: list[float | None]


class FleetSeriesBody(msgspec.Struct, frozen=True):
    """A sensor of several boards in the same intervals; intervals without any value are omitted."""

    sensor: str
    sensor_info: SensorBody | None
    interval_ms: int
    from_ms: list[int]
    boards: list[BoardSeriesBody]


def to_number(value: float | None) -> Number | None:
    """Convert a JSON number to an exact decimal; tiny ones, which no store holds, become 0."""
    if value is None or isinstance(value, int):
        return value
    return Decimal(str(value)) if abs(value) > 1e-100 else 0


def desired_state_body(desired: DesiredState) -> DesiredStateBody:
    return DesiredStateBody(
        desired.hardware_id,
        desired.version,
        msgspec.Raw(desired.state.encode()),
        desired.updated_at,
        desired.reported_version,
        desired.reported_at,
        desired.is_applied,
    )


def latest_body(latest: LatestReading) -> LatestBody:
    device, reading = latest
    return LatestBody(
        device.hardware_id,
        device.friendly_name,
        device.group,
        None if reading is None else reading_body(reading),
    )


def fleet_series_body(series: AlignedSeries, info: SensorInfo | None) -> FleetSeriesBody:
    boards = [
        BoardSeriesBody(
            device.hardware_id,
            device.friendly_name,
            [0 if bucket is None else bucket.count for bucket in buckets],
            [_value(bucket, "minimum") for bucket in buckets],
            [_value(bucket, "maximum") for bucket in buckets],
            [None if bucket is None else float(bucket.mean) for bucket in buckets],
        )
        for device, buckets in series.boards
    ]
    return FleetSeriesBody(
        series.sensor,
        None if info is None else sensor_body(info),
        series.interval_ms,
        list(series.starts),
        boards,
    )


def _value(bucket: Bucket | None, name: Literal["minimum", "maximum"]) -> int | float | None:
    if bucket is None:
        return None
    return json_number(bucket.minimum if name == "minimum" else bucket.maximum)


STATE_BODY_LIMIT: Final = 4 * MAX_STATE_BYTES
