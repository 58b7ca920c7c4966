"""Devices, readings and API keys as immutable records, and the limits that apply to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import msgspec

Number: TypeAlias = int | Decimal
# The start key of the next page. Only the repository knows its structure.
PageKey: TypeAlias = Mapping[str, Any]

MAX_READINGS: Final = 100
MAX_BATCH_ID_LENGTH: Final = 256
MAX_SENSORS: Final = 64
MAX_TEXT_LENGTH: Final = 128
MIN_TIMESTAMP_MS: Final = 946_684_800_000  # 2000-01-01
MAX_TIMESTAMP_MS: Final = 4_102_444_800_000  # 2100-01-01
DAY_MS: Final = 86_400_000
BATCH_TTL_SECONDS: Final = 30 * 86_400
SENSOR_STATUSES: Final = frozenset({"ok", "error"})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The sensors and features that a board reports when it registers."""

    sensors: tuple[str, ...] = ()
    features: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Device:
    """A known board. Capabilities are empty until it registers; posting data alone creates it."""

    hardware_id: str
    confirmation_id: str
    capabilities: Capabilities
    first_registered_at: str
    last_seen_at: str
    last_boot_id: str
    firmware_version: str
    friendly_name: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    # How far the board's clock was ahead of the server's, if positive.
    clock_offset_ms: int | None = None


class Sender(msgspec.Struct, frozen=True, gc=False):
    """The board that sends a request, in its current boot.

    Its readings may come from an earlier boot.
    """

    hardware_id: str
    boot_id: str
    firmware_version: str


class Reading(msgspec.Struct, frozen=True, gc=False):
    """The sensor values that a board measured in one time window.

    A msgspec struct, because ingestion creates thousands per second. The nine fields are the
    attributes of the table.
    """

    hardware_id: str
    batch_id: str
    timestamp_ms: int
    boot_id: str
    firmware_version: str
    sensors: Mapping[str, Number]
    sensor_status: Mapping[str, str]
    friendly_name: str | None = None
    # The board's clock was more than a day ahead of the server's on arrival.
    clock_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Rejection:
    """A reading that is not stored: its index in the request, the field at fault and why."""

    index: int
    field: str
    why: str
    batch_id: str | None = None
    code: str = "invalid_field"


class Receipt(msgspec.Struct, frozen=True):
    """The outcome of a request. Every reading is in exactly one of the three lists."""

    acknowledged: Sequence[str] = ()
    duplicates: Sequence[str] = ()
    rejected: Sequence[Rejection] = ()


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """What is recorded under a batch id. Batches of earlier versions have no digest."""

    hardware_id: str
    content_digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as stored: its hash, never the key itself."""

    key_id: str
    api_key_hash: str
    created_at: str
    is_active: bool
    description: str | None = None
    last_used_at: str | None = None
    # The boards that may use the key; empty: every board, or those of the group.
    hardware_ids: tuple[str, ...] = ()
    group: str | None = None
    # How the key starts, to recognise it; None for keys of earlier versions.
    prefix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A request to delete a device, or its readings in a time range, and its progress."""

    deletion_id: str
    hardware_id: str
    kind: Literal["device", "readings"]
    time_range: tuple[int, int]
    requested_at: str
    requested_by: str
    status: Literal["pending", "running", "done"] = "pending"
    deleted_readings: int = 0
    # When all readings were deleted; what remains are the roll-ups and the record of the device.
    readings_deleted_at: int | None = None
    finished_at: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A one-time code as stored: its hash, until when it is valid, and for which board."""

    code_hash: str
    created_at: str
    created_by: str
    expires_at: int
    hardware_id: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """One chart point: the values of a sensor within a time interval."""

    from_ms: int
    to_ms: int
    count: int
    minimum: Number
    maximum: Number
    mean: Decimal
    first: Number
    last: Number


@dataclass(frozen=True, slots=True)
class Series:
    """A sensor over time, in intervals of equal length."""

    sensor: str
    interval_ms: int
    buckets: tuple[Bucket, ...]
