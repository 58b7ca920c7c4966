"""Response bodies, and their construction from the model."""

from typing import Literal

import msgspec

from tally.devices.api.schemas import fields
from tally.devices.api.schemas.requests import CapabilitiesBody
from tally.devices.model.fleet import DesiredState, SensorInfo
from tally.devices.model.records import (
    ApiKey,
    Bucket,
    Claim,
    Deletion,
    Device,
    Number,
    Reading,
    Receipt,
    Series,
)
from tally.kit.clock import rfc3339_seconds


class StateForBoard(msgspec.Struct, frozen=True):
    """A state for the board to apply; the board then reports `version` as `state_version`."""

    version: int
    state: fields.JsonObject


class SensorBody(msgspec.Struct, frozen=True):
    """A sensor; `is_default` if nobody has changed what Tally knows of it."""

    sensor: str
    unit: str | None
    minimum: int | float | None
    maximum: int | float | None
    precision: int | None
    is_default: bool


class ConfirmationBody(msgspec.Struct, frozen=True):
    """The confirmation id of a board is the same at every registration."""

    status: Literal["registered", "updated"]
    hardware_id: str
    confirmation_id: str
    first_registered_at: str
    last_seen_at: str
    desired_state: StateForBoard | msgspec.UnsetType = msgspec.UNSET


class RejectionBody(msgspec.Struct, frozen=True):
    index: int
    field: str
    why: str
    code: str


class ReceiptBody(msgspec.Struct, frozen=True):
    """Every submitted reading is in exactly one list; rejected ones by their index."""

    acknowledged_batch_ids: list[str]
    duplicate_batch_ids: list[str]
    rejected: list[RejectionBody]
    desired_state: StateForBoard | msgspec.UnsetType = msgspec.UNSET


class KeyBody(msgspec.Struct, frozen=True):
    key_id: str
    created_at: str
    is_active: bool
    description: str | None
    last_used_at: str | None
    hardware_ids: list[str]
    group: str | None


class CreatedKeyBody(msgspec.Struct, frozen=True):
    """The only response that contains the key itself."""

    key_id: str
    api_key: str
    created_at: str
    description: str | None
    hardware_ids: list[str]
    group: str | None


class CreatedClaimBody(msgspec.Struct, frozen=True):
    """The only response that contains the code."""

    code: str
    expires_at: str
    hardware_id: str | None
    description: str | None


class DeletionBody(msgspec.Struct, frozen=True):
    """A deletion of a device, or of its readings in a time range."""

    deletion_id: str
    hardware_id: str
    kind: Literal["device", "readings"]
    from_ms: int
    to_ms: int
    status: Literal["pending", "running", "done"]
    deleted_readings: int
    requested_at: str
    requested_by: str
    finished_at: str | None


class DeletionPage(msgspec.Struct, frozen=True):
    items: list[DeletionBody]
    next_cursor: str | None


class KeyPage(msgspec.Struct, frozen=True):
    items: list[KeyBody]
    next_cursor: str | None


class DeviceBody(msgspec.Struct, frozen=True):
    hardware_id: str
    confirmation_id: str
    friendly_name: str | None
    firmware_version: str
    capabilities: CapabilitiesBody
    first_registered_at: str
    last_seen_at: str
    last_boot_id: str
    clock_offset_ms: int | None
    group: str | None = None
    tags: list[str] = msgspec.field(default_factory=list)


class DevicePage(msgspec.Struct, frozen=True):
    items: list[DeviceBody]
    next_cursor: str | None


class ReadingBody(msgspec.Struct, frozen=True):
    """A stored reading."""

    hardware_id: str
    batch_id: str
    timestamp_ms: int
    boot_id: str
    firmware_version: str
    friendly_name: str | None
    sensors: dict[str, int | float]
    sensor_status: dict[str, str]
    clock_ahead: bool


class ReadingSnapshot(msgspec.Struct, frozen=True):
    """The first event of a stream that does not continue an earlier one."""

    hardware_id: str
    latest: ReadingBody | None


class ReadingPage(msgspec.Struct, frozen=True):
    items: list[ReadingBody]
    next_cursor: str | None


class BucketBody(msgspec.Struct, frozen=True):
    from_ms: int
    to_ms: int
    count: int
    min: int | float
    max: int | float
    mean: float
    first: int | float
    last: int | float


class SeriesBody(msgspec.Struct, frozen=True):
    """A sensor over time: exact aggregates of intervals; empty intervals are omitted."""

    hardware_id: str
    sensor: str
    interval_ms: int
    buckets: list[BucketBody]
    sensor_info: SensorBody | None = None


def json_number(value: Number) -> int | float:
    """Convert a stored number to a JSON number."""
    return value if isinstance(value, int) else float(value)


def sensor_body(info: SensorInfo) -> SensorBody:
    return SensorBody(
        info.sensor,
        info.unit,
        None if info.minimum is None else json_number(info.minimum),
        None if info.maximum is None else json_number(info.maximum),
        info.precision,
        info.is_default,
    )


def state_for_board(desired: DesiredState | None) -> StateForBoard | msgspec.UnsetType:
    """Return the field of a response to a board; it is absent if there is nothing to apply."""
    if desired is None:
        return msgspec.UNSET
    return StateForBoard(desired.version, msgspec.Raw(desired.state.encode()))


def receipt_body(receipt: Receipt, desired: DesiredState | None = None) -> ReceiptBody:
    rejected = [
        RejectionBody(rejection.index, rejection.field, rejection.why, rejection.code)
        for rejection in receipt.rejected
    ]
    return ReceiptBody(
        list(receipt.acknowledged), list(receipt.duplicates), rejected, state_for_board(desired)
    )


def confirmation_body(
    device: Device, desired: DesiredState | None, *, is_new: bool
) -> ConfirmationBody:
    return ConfirmationBody(
        "registered" if is_new else "updated",
        device.hardware_id,
        device.confirmation_id,
        device.first_registered_at,
        device.last_seen_at,
        state_for_board(desired),
    )


def device_body(device: Device) -> DeviceBody:
    return DeviceBody(
        hardware_id=device.hardware_id,
        confirmation_id=device.confirmation_id,
        friendly_name=device.friendly_name,
        firmware_version=device.firmware_version,
        capabilities=CapabilitiesBody(
            list(device.capabilities.sensors), dict(device.capabilities.features)
        ),
        first_registered_at=device.first_registered_at,
        last_seen_at=device.last_seen_at,
        last_boot_id=device.last_boot_id,
        clock_offset_ms=device.clock_offset_ms,
        group=device.group,
        tags=list(device.tags),
    )


def key_body(key: ApiKey) -> KeyBody:
    return KeyBody(
        key.key_id,
        key.created_at,
        key.is_active,
        key.description,
        key.last_used_at,
        list(key.hardware_ids),
        key.group,
    )


def created_key_body(key: ApiKey, raw: str) -> CreatedKeyBody:
    return CreatedKeyBody(
        key.key_id, raw, key.created_at, key.description, list(key.hardware_ids), key.group
    )


def created_claim_body(claim: Claim, code: str) -> CreatedClaimBody:
    expires_at = rfc3339_seconds(claim.expires_at)
    return CreatedClaimBody(code, expires_at, claim.hardware_id, claim.description)


def deletion_body(deletion: Deletion) -> DeletionBody:
    return DeletionBody(
        deletion.deletion_id,
        deletion.hardware_id,
        deletion.kind,
        *deletion.time_range,
        deletion.status,
        deletion.deleted_readings,
        deletion.requested_at,
        deletion.requested_by,
        deletion.finished_at,
    )


def reading_body(reading: Reading) -> ReadingBody:
    return ReadingBody(
        hardware_id=reading.hardware_id,
        batch_id=reading.batch_id,
        timestamp_ms=reading.timestamp_ms,
        boot_id=reading.boot_id,
        firmware_version=reading.firmware_version,
        friendly_name=reading.friendly_name,
        sensors={name: json_number(value) for name, value in reading.sensors.items()},
        sensor_status=dict(reading.sensor_status),
        clock_ahead=reading.clock_ahead,
    )


def series_body(hardware_id: str, series: Series, info: SensorInfo | None) -> SeriesBody:
    return SeriesBody(
        hardware_id,
        series.sensor,
        series.interval_ms,
        [_bucket_body(bucket) for bucket in series.buckets],
        None if info is None else sensor_body(info),
    )


def _bucket_body(bucket: Bucket) -> BucketBody:
    return BucketBody(
        bucket.from_ms,
        bucket.to_ms,
        bucket.count,
        json_number(bucket.minimum),
        json_number(bucket.maximum),
        float(bucket.mean),
        json_number(bucket.first),
        json_number(bucket.last),
    )
