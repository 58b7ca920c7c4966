"""What goes over the wire: the bodies that boards and operators send and get, and the models they become.

Numbers are JSON numbers. They are taken as decimals, so that 22.5 is stored as exactly 22.5.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Final, Literal

import msgspec

from tally.devices.api import formats
from tally.devices.measured import Measured, Sent, check_count
from tally.devices.model import (
    ApiKey,
    Bucket,
    Capabilities,
    Device,
    Number,
    Reading,
    Receipt,
    Rejection,
    Sender,
    Series,
)
from tally.errors import Invalid
from tally.kit.body import StrictStruct, decode_json
from tally.kit.memo import Memo


class CapabilitiesBody(StrictStruct, frozen=True):
    sensors: formats.Names = msgspec.field(default_factory=list)
    features: formats.Features = msgspec.field(default_factory=dict)


class Registration(StrictStruct, frozen=True):
    """What a board says when it boots."""

    hardware_id: formats.HardwareId
    boot_id: formats.Uuid
    firmware_version: formats.Version
    capabilities: CapabilitiesBody


class Confirmation(msgspec.Struct, frozen=True):
    """The confirmation id is the same at every registration of a board."""

    status: Literal["registered", "updated"]
    hardware_id: str
    confirmation_id: str
    first_registered_at: str
    last_seen_at: str


class ReadingBody(StrictStruct, frozen=True):
    """One reading.

    `boot_id` and `firmware_version` are those of the request, unless it was measured before another
    boot.
    """

    batch_id: formats.BatchId
    timestamp_ms: formats.Time
    sensors: formats.Values
    sensor_status: formats.Statuses = msgspec.field(default_factory=dict)
    boot_id: formats.Uuid | None = None
    firmware_version: formats.Version | None = None


class DataBody(StrictStruct, frozen=True):
    """What a board measured: 1 to 100 readings. Each is looked at on its own."""

    hardware_id: formats.HardwareId
    boot_id: formats.Uuid
    firmware_version: formats.Version
    readings: Annotated[list[ReadingBody], msgspec.Meta(min_length=1, max_length=100)]


class Data(StrictStruct, frozen=True):
    """The same as it is read."""

    hardware_id: str
    boot_id: str
    firmware_version: str
    readings: list[Measured]


class DataApart(StrictStruct, frozen=True):
    """The same with readings that are to be read one by one, since something is wrong with one of them."""

    hardware_id: str
    boot_id: str
    firmware_version: str
    readings: list[msgspec.Raw]


class RejectionBody(msgspec.Struct, frozen=True):
    index: int
    field: str
    why: str


class ReceiptBody(msgspec.Struct, frozen=True):
    """Every batch id that was sent is in exactly one of the three; the rejected by their place in the request."""

    acknowledged_batch_ids: list[str]
    duplicate_batch_ids: list[str]
    rejected: list[RejectionBody]


class NewKey(StrictStruct, frozen=True):
    description: formats.Description | None = None


class KeyBody(msgspec.Struct, frozen=True):
    key_id: str
    created_at: str
    is_active: bool
    description: str | None
    last_used_at: str | None


class CreatedKey(msgspec.Struct, frozen=True):
    """The one time that the key itself is shown."""

    key_id: str
    api_key: str
    created_at: str
    description: str | None


class KeyPage(msgspec.Struct, frozen=True):
    api_keys: list[KeyBody]
    next_cursor: str | None


class Rename(StrictStruct, frozen=True):
    """The name that a person gives a device; null takes it away."""

    friendly_name: formats.FriendlyName | None


class DeviceBody(msgspec.Struct, frozen=True):
    hardware_id: str
    confirmation_id: str
    friendly_name: str | None
    firmware_version: str
    capabilities: CapabilitiesBody
    first_registered_at: str
    last_seen_at: str
    last_boot_id: str


class DevicePage(msgspec.Struct, frozen=True):
    devices: list[DeviceBody]
    next_cursor: str | None


class ReadingShown(msgspec.Struct, frozen=True):
    hardware_id: str
    batch_id: str
    timestamp_ms: int
    boot_id: str
    firmware_version: str
    friendly_name: str | None
    sensors: dict[str, int | float]
    sensor_status: dict[str, str]
    clock_ahead: bool


class ReadingPage(msgspec.Struct, frozen=True):
    readings: list[ReadingShown]
    next_cursor: str | None


class BucketBody(msgspec.Struct, frozen=True):
    from_ms: int
    to_ms: int
    count: int
    min: int | float
    max: int | float
    mean: float


class SeriesBody(msgspec.Struct, frozen=True):
    """A sensor over time; `sampled`: buckets with very many readings were not read to their end."""

    hardware_id: str
    sensor: str
    sampled: bool
    buckets: list[BucketBody]


def sent_in(body: bytes) -> tuple[Sender, Sequence[Sent]]:
    """Who sent the body of a request, and what: a reading that cannot be read is a rejection in its place."""
    try:
        data = _data.decode(body)
    except _UNREADABLE:
        apart = decode_json(body, DataApart)
        check_count(len(apart.readings))
        return _sender(apart), [_read(index, raw) for index, raw in enumerate(apart.readings)]
    return _sender(data), data.readings


def _sender(data: Data | DataApart) -> Sender:
    return Sender(data.hardware_id, data.boot_id, data.firmware_version)


def _read(index: int, raw: msgspec.Raw) -> Sent:
    try:
        return _measured.decode(raw)
    except _UNREADABLE:
        return _rejection(index, raw)


def _rejection(index: int, raw: msgspec.Raw) -> Rejection:
    """What is wrong with a reading that could not be read, in the kit's words."""
    try:
        decode_json(bytes(raw), ReadingBody)
    except Invalid as error:
        return Rejection(
            index, str(error.details.get("field", "body")), error.message, _batch_id(raw)
        )
    return Rejection(index, "body", "body cannot be read", _batch_id(raw))


def _decimal(text: str) -> Decimal:
    """A number as JSON spells it, exactly: every one is some float's shortest form, and one with few digits is its own."""
    number = Decimal(text if len(text) <= _FLOAT_DIGITS else repr(float(text)))
    if not number.is_finite():
        raise ValueError("the number is too large")
    return number


_FLOAT_DIGITS: Final = 15
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decimals = Memo(_decimal)  # sensors show the same few thousand again and again
_data = msgspec.json.Decoder(Data, float_hook=_decimals.__getitem__)
_measured = msgspec.json.Decoder(Measured, float_hook=_decimals.__getitem__)


class _Named(msgspec.Struct, frozen=True):
    batch_id: str


_named = msgspec.json.Decoder(_Named)


def _batch_id(raw: msgspec.Raw) -> str | None:
    """The batch id of a reading with which something else is wrong, if it has one."""
    try:
        return _named.decode(raw).batch_id
    except (msgspec.DecodeError, RecursionError):
        return None


def plain(value: Number) -> int | float:
    """A stored number as a JSON number."""
    return value if isinstance(value, int) else float(value)


def capabilities_of(body: CapabilitiesBody) -> Capabilities:
    return Capabilities(tuple(body.sensors), body.features)


def receipt_body(receipt: Receipt) -> ReceiptBody:
    rejected = [RejectionBody(each.index, each.field, each.why) for each in receipt.rejected]
    return ReceiptBody(list(receipt.acknowledged), list(receipt.duplicates), rejected)


def confirmation(device: Device, *, is_new: bool) -> Confirmation:
    return Confirmation(
        "registered" if is_new else "updated",
        device.hardware_id,
        device.confirmation_id,
        device.first_registered_at,
        device.last_seen_at,
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
    )


def key_body(key: ApiKey) -> KeyBody:
    return KeyBody(key.key_id, key.created_at, key.is_active, key.description, key.last_used_at)


def reading_shown(reading: Reading) -> ReadingShown:
    return ReadingShown(
        hardware_id=reading.hardware_id,
        batch_id=reading.batch_id,
        timestamp_ms=reading.timestamp_ms,
        boot_id=reading.boot_id,
        firmware_version=reading.firmware_version,
        friendly_name=reading.friendly_name,
        sensors={name: plain(value) for name, value in reading.sensors.items()},
        sensor_status=dict(reading.sensor_status),
        clock_ahead=reading.clock_ahead,
    )


def series_body(hardware_id: str, series: Series) -> SeriesBody:
    return SeriesBody(
        hardware_id, series.sensor, series.sampled, [_bucket(bucket) for bucket in series.buckets]
    )


def _bucket(bucket: Bucket) -> BucketBody:
    return BucketBody(
        bucket.from_ms,
        bucket.to_ms,
        bucket.count,
        plain(bucket.least),
        plain(bucket.most),
        float(bucket.mean),
    )
