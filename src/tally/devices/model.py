"""What a device, a reading and an API key are, and the rules that make one good.

No input or output here, and no clock.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from tally.errors import Invalid

Number: TypeAlias = int | Decimal
# Where the next page of a list starts: only the repository knows what is in it.
PageKey: TypeAlias = Mapping[str, Any]

MAX_READINGS: Final = 100
MAX_BATCH_ID: Final = 256
MAX_SENSORS: Final = 64
MAX_TEXT: Final = 128
EARLIEST_MS: Final = 946_684_800_000  # 2000-01-01
LATEST_MS: Final = 4_102_444_800_000  # 2100-01-01
DAY_MS: Final = 86_400_000
BATCH_SECONDS: Final = 30 * 86_400
STATUSES: Final = frozenset({"ok", "error"})

_hardware_id = re.compile(r"[0-9A-F]{2}(:[0-9A-F]{2}){5}")
_uuid4 = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
_name = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_NAMES: Final = 4096
_known_names: Final[set[str]] = set()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a board says it can do."""

    sensors: tuple[str, ...] = ()
    features: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Device:
    """A board that has been heard of. One that only ever posted data has no capabilities yet."""

    hardware_id: str
    confirmation_id: str
    capabilities: Capabilities
    first_registered_at: str
    last_seen_at: str
    last_boot_id: str
    firmware_version: str
    friendly_name: str | None = None


@dataclass(frozen=True, slots=True)
class Sender:
    """A board that sends readings, as it is now; the readings may be from before its latest boot."""

    hardware_id: str
    boot_id: str
    firmware_version: str


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What a board measured in one window of time.

    A struct, since thousands are made in a second.
    """

    hardware_id: str
    batch_id: str
    timestamp_ms: int
    boot_id: str
    firmware_version: str
    sensors: Mapping[str, Number]
    sensor_status: Mapping[str, str]
    friendly_name: str | None = None
    # The board's clock was more than a day ahead of ours when this arrived.
    clock_ahead: bool = False


@dataclass(frozen=True, slots=True)
class Rejection:
    """A reading that was not stored: where it stood in the request, the field at fault, why, and its id if it had one."""

    index: int
    field: str
    why: str
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a request's readings: every batch id is in exactly one of the three."""

    acknowledged: Sequence[str] = ()
    duplicates: Sequence[str] = ()
    rejected: Sequence[Rejection] = ()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: never the key itself."""

    key_id: str
    api_key_hash: str
    created_at: str
    is_active: bool
    description: str | None = None
    last_used_at: str | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """One point of a chart: a stretch of time, and what the sensor showed in it."""

    from_ms: int
    to_ms: int
    count: int
    least: Number
    most: Number
    mean: Decimal


@dataclass(frozen=True, slots=True)
class Series:
    """A sensor over time.

    `sampled` says that buckets with very many readings were not read to their end.
    """

    sensor: str
    buckets: tuple[Bucket, ...]
    sampled: bool


def timestamp(moment: datetime) -> str:
    """A moment as metadata has it: RFC 3339, UTC, whole seconds.

    Such strings sort as the moments do.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_hardware_id(value: str) -> str:
    """A MAC address in capitals, or Invalid."""
    if not _hardware_id.fullmatch(value):
        raise refusal("hardware_id", "must be a MAC address such as AA:BB:CC:DD:EE:FF, in capitals")
    return value


def check_uuid4(value: str, where: str) -> str:
    """A UUID of version 4, in lower case, or Invalid."""
    found = _canonical_uuid4(value) if len(value) == 36 else None
    if found is None:
        raise refusal(where, "must be a UUID of version 4")
    return found


@lru_cache(maxsize=20_000)
def _canonical_uuid4(value: str) -> str | None:
    """Remembered, since a board sends its boot's id with every reading; of that length alone, or memory would have no bound."""
    return value.lower() if _uuid4.fullmatch(value) else None


def are_names(values: Iterable[str]) -> bool:
    """Whether all are names.

    Boards have few sensors and name them with every reading, so what was a name once is remembered.
    """
    return _known_names.issuperset(values) or all(_is_name(value) for value in values)


def _is_name(value: str) -> bool:
    if not _name.fullmatch(value):
        return False
    if len(_known_names) < _MAX_NAMES:
        _known_names.add(value)
    return True


def check_text(value: str, where: str, most: int = MAX_TEXT) -> str:
    """A short printable text, or Invalid."""
    if not 0 < len(value) <= most or not value.isprintable():
        raise refusal(where, f"must have 1 to {most} printable characters")
    return value


def check_capabilities(capabilities: Capabilities) -> Capabilities:
    """Capabilities of a reasonable size, or Invalid."""
    if not are_names(capabilities.sensors):
        raise refusal(
            "capabilities.sensors", "must be names of 1 to 64 letters, digits, '_', '-' and '.'"
        )
    if not are_names(capabilities.features):
        raise refusal(
            "capabilities.features", "must have names of 1 to 64 letters, digits, '_', '-' and '.'"
        )
    if len(capabilities.sensors) > MAX_SENSORS or len(capabilities.features) > MAX_SENSORS:
        raise refusal("capabilities", f"must not name more than {MAX_SENSORS} sensors or features")
    return capabilities


def check_sender(sender: Sender) -> Sender:
    """A board that says properly who it is, or Invalid."""
    check_hardware_id(sender.hardware_id)
    check_text(sender.firmware_version, "firmware_version", 64)
    return replace(sender, boot_id=check_uuid4(sender.boot_id, "boot_id"))


def refusal(where: str, rule: str) -> Invalid:
    """That a field breaks a rule."""
    return Invalid(f"{where} {rule}", code="invalid_format", field=where)
