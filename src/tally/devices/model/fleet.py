"""What operators say about boards and sensors: groups, tags, units, and desired states."""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from tally.devices.model.records import Number
from tally.devices.model.validation import NAME_RULE, are_names, check_text, invalid_field
from tally.errors import TooLarge

MAX_TAGS: Final = 16
MAX_SENSORS_DESCRIBED: Final = 1_000
MAX_PRECISION: Final = 9
MAX_STATE_BYTES: Final = 4_096

_label = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class SensorInfo(msgspec.Struct, frozen=True):
    """What is known of a sensor: its unit, plausible range and decimal places, all optional."""

    sensor: str
    unit: str | None = None
    minimum: Number | None = None
    maximum: Number | None = None
    precision: int | None = None
    # Set for sensors that Tally knows without a record.
    is_default: bool = False

    def rounded(self, value: Number) -> Number:
        """Round a value to the precision, for display."""
        return value if self.precision is None else round(Decimal(value), self.precision)


# The sensors of the specification.
DEFAULT_SENSORS: Final[Mapping[str, SensorInfo]] = {
    info.sensor: info
    for info in (
        SensorInfo("bme280_temp_c", "°C", -40, 85, 2, is_default=True),
        SensorInfo("ds18b20_temp_c", "°C", -55, 125, 2, is_default=True),
        SensorInfo("humidity_pct", "%", 0, 100, 1, is_default=True),
        SensorInfo("pressure_hpa", "hPa", 300, 1100, 2, is_default=True),
        SensorInfo("soil_moisture_pct", "%", 0, 100, 1, is_default=True),
    )
}


class DesiredState(msgspec.Struct, frozen=True):
    """The state that an operator wants a board to have, and the version that the board reported."""

    hardware_id: str
    version: int
    # JSON, exactly as the operator wrote it.
    state: str
    updated_at: str
    reported_version: int = 0
    reported_at: str | None = None

    @property
    def is_applied(self) -> bool:
        return self.reported_version == self.version


def check_sensor_info(info: SensorInfo) -> SensorInfo:
    """Require a valid name, a printable unit, and a minimum below the maximum."""
    if not are_names((info.sensor,)):
        raise invalid_field("sensor", NAME_RULE)
    if info.unit is not None:
        check_text(info.unit, "unit", 32)
    if info.minimum is not None and info.maximum is not None and info.minimum >= info.maximum:
        raise invalid_field("minimum", "must be less than maximum")
    if info.precision is not None and not 0 <= info.precision <= MAX_PRECISION:
        raise invalid_field("precision", f"must be from 0 to {MAX_PRECISION}")
    return info


def check_group(group: str, field: str = "group") -> str:
    """Require a name, as it appears in URLs and labels."""
    if not _label.fullmatch(group):
        raise invalid_field(field, "must have 1 to 64 letters, digits, '_', '-' and '.'")
    return group


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Require a few distinct names; return them sorted."""
    if len(tags) > MAX_TAGS:
        raise invalid_field("tags", f"must have at most {MAX_TAGS} entries")
    if not are_names(tags):
        raise invalid_field("tags", NAME_RULE)
    if len(set(tags)) < len(tags):
        raise invalid_field("tags", "must not repeat a tag")
    return tuple(sorted(tags))


def check_state(state: str) -> str:
    """Require a desired state of at most 4 KB of JSON."""
    size = len(state.encode())
    if size > MAX_STATE_BYTES:
        raise TooLarge(
            f"state must be at most {MAX_STATE_BYTES} bytes of JSON, not {size}", field="state"
        )
    return state
