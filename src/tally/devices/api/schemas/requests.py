"""Request bodies and query strings, and parsing of `POST /data`.

JSON numbers are parsed as decimals, so that 22.5 is stored as exactly 22.5.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from tally.devices.api.schemas import fields
from tally.devices.model.records import Capabilities, Rejection, Sender
from tally.devices.model.submission import Submission, SubmittedReading, check_count
from tally.errors import Invalid
from tally.kit.body import StrictStruct, decode_json
from tally.kit.memo import Memo

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=99_999_999_999_999)]


class ListQuery(StrictStruct, frozen=True):
    limit: Limit = 50
    cursor: str | None = None


class DevicesQuery(StrictStruct, frozen=True):
    group: fields.GroupName | None = None
    limit: Limit = 50
    cursor: str | None = None


class ReadingsQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    first: Milliseconds = 0
    last: Milliseconds = 4_102_444_800_000
    order: Literal["asc", "desc"] = "asc"
    limit: Limit = 100
    cursor: str | None = None


class SeriesQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    sensor: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    first: Milliseconds
    last: Milliseconds
    points: Annotated[int, msgspec.Meta(ge=1, le=500)] = 200


class ExportQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    format: Literal["csv", "ndjson", "parquet"] = "csv"
    first: Milliseconds = 0
    last: Milliseconds = 4_102_444_800_000
    units: bool = False


class CapabilitiesBody(StrictStruct, frozen=True):
    sensors: fields.SensorNames = msgspec.field(default_factory=list)
    features: fields.Features = msgspec.field(default_factory=dict)


class RegistrationBody(StrictStruct, frozen=True):
    """A board registers at every boot."""

    hardware_id: fields.HardwareId
    boot_id: fields.Uuid
    firmware_version: fields.Version
    capabilities: CapabilitiesBody
    # The version of the desired state that the board has applied.
    state_version: fields.StateVersion | None = None


class SubmittedReadingBody(StrictStruct, frozen=True):
    """One reading.

    `boot_id` and `firmware_version` default to those of the request. Set them for readings from an
    earlier boot.
    """

    batch_id: fields.BatchId
    timestamp_ms: fields.Timestamp
    sensors: fields.SensorValues
    sensor_status: fields.SensorStatuses = msgspec.field(default_factory=dict)
    boot_id: fields.Uuid | None = None
    firmware_version: fields.Version | None = None


class DataBody(StrictStruct, frozen=True):
    """1 to 100 readings. Each is validated independently."""

    hardware_id: fields.HardwareId
    boot_id: fields.Uuid
    firmware_version: fields.Version
    readings: Annotated[list[SubmittedReadingBody], msgspec.Meta(min_length=1, max_length=100)]
    # The version of the desired state that the board has applied.
    state_version: fields.StateVersion | None = None


class ParsedData(StrictStruct, frozen=True):
    """A `DataBody` whose readings all have the right types."""

    hardware_id: str
    boot_id: str
    firmware_version: str
    readings: list[SubmittedReading]
    state_version: fields.StateVersion | None = None


class PartlyParsedData(StrictStruct, frozen=True):
    """A `DataBody` whose readings are still to be parsed one by one."""

    hardware_id: str
    boot_id: str
    firmware_version: str
    readings: list[msgspec.Raw]
    state_version: fields.StateVersion | None = None


class NewKeyBody(StrictStruct, frozen=True):
    """A key for all boards, for the listed ones, or for those of a group."""

    description: fields.Description | None = None
    hardware_ids: fields.HardwareIds | None = None
    group: fields.GroupName | None = None


class NewClaimBody(StrictStruct, frozen=True):
    """A one-time code, for the named board or for any."""

    hardware_id: fields.HardwareId | None = None
    description: fields.Description | None = None
    expires_in_seconds: Annotated[int, msgspec.Meta(ge=60, le=604_800)] = 3_600


class ClaimBody(StrictStruct, frozen=True):
    """Letters of the code may be in lower case; spaces and dashes are ignored."""

    code: Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
    hardware_id: fields.HardwareId


class DeletionQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    first: Milliseconds
    last: Milliseconds


def to_capabilities(body: CapabilitiesBody) -> Capabilities:
    return Capabilities(tuple(body.sensors), body.features)


class Upload(NamedTuple):
    """The parsed body of `POST /data`."""

    sender: Sender
    submissions: Sequence[Submission]
    state_version: int | None


def parse_upload(body: bytes) -> Upload:
    """Parse the body of `POST /data`. A reading that cannot be parsed becomes a rejection."""
    try:
        data = _data_decoder.decode(body)
    except _DECODE_ERRORS:
        partly = decode_json(body, PartlyParsedData)
        check_count(len(partly.readings))
        submissions = [_parse_reading(*entry) for entry in enumerate(partly.readings)]
        return Upload(_sender(partly), submissions, partly.state_version)
    return Upload(_sender(data), data.readings, data.state_version)


def _sender(data: ParsedData | PartlyParsedData) -> Sender:
    return Sender(data.hardware_id, data.boot_id, data.firmware_version)


def _parse_reading(index: int, raw: msgspec.Raw) -> Submission:
    try:
        return _reading_decoder.decode(raw)
    except _DECODE_ERRORS:
        return _rejection(index, raw)


def _rejection(index: int, raw: msgspec.Raw) -> Rejection:
    """Explain why a reading cannot be parsed, with the error messages of the kit."""
    try:
        decode_json(bytes(raw), SubmittedReadingBody)
    except Invalid as error:
        field = str(error.details.get("field", "body"))
        return Rejection(index, field, error.message, _batch_id(raw), error.code)
    return Rejection(index, "body", "body is not a valid reading", _batch_id(raw))


def _decimal(text: str) -> Decimal:
    """Parse a JSON number with the precision of a float.

    Up to 15 digits are exact. Longer numbers become the shortest form of the nearest float.
    """
    number = Decimal(text if len(text) <= _FLOAT_DIGITS else repr(float(text)))
    if not number.is_finite():
        raise ValueError("number out of range")
    return _canonical(number)


def _canonical(number: Decimal) -> Decimal:
    """Return the form that all texts of a number share, for digests: 2E+1 and 20.0 become 20."""
    if not number:
        return Decimal(0)
    number = number.normalize()
    is_whole = 0 <= number.adjusted() < _FLOAT_DIGITS and number == number.to_integral_value()
    return number.quantize(Decimal(1)) if is_whole else number


_FLOAT_DIGITS: Final = 15
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decimals = Memo(_decimal)  # sensors repeat the same few thousand values
_data_decoder = msgspec.json.Decoder(ParsedData, float_hook=_decimals.__getitem__)
_reading_decoder = msgspec.json.Decoder(SubmittedReading, float_hook=_decimals.__getitem__)


class _WithBatchId(msgspec.Struct, frozen=True):
    batch_id: str


_batch_id_decoder = msgspec.json.Decoder(_WithBatchId)


def _batch_id(raw: msgspec.Raw) -> str | None:
    """Extract the batch id of an otherwise invalid reading, if it has one."""
    try:
        return _batch_id_decoder.decode(raw).batch_id
    except _DECODE_ERRORS:
        return None
