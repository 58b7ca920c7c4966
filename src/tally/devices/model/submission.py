"""Readings as boards submit them: validation, and conversion to stored readings.

A board submits up to 100 similar readings per request, and a server receives thousands per second.
Validation therefore checks one field of all readings at a time. To find out which reading is
invalid, the caller checks them one by one.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from tally.devices.model.records import (
    DAY_MS,
    MAX_BATCH_ID_LENGTH,
    MAX_READINGS,
    MAX_SENSORS,
    MAX_TIMESTAMP_MS,
    MIN_TIMESTAMP_MS,
    SENSOR_STATUSES,
    Reading,
    Rejection,
    Sender,
)
from tally.devices.model.validation import (
    NAME_RULE,
    are_names,
    check_text,
    check_uuid4,
    invalid_field,
)
from tally.errors import Invalid

MAX_DIGITS: Final = 38
_MAX_NUMBER: Final = Decimal("1E+120")
_MIN_NUMBER: Final = Decimal("1E-120")
_MIN_SAFE_EXPONENT: Final = -119
_batch_ids = re.compile(r"[A-Za-z0-9_:.-]+")


class SubmittedReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A reading in a request, before validation.

    `boot_id` and `firmware_version` are set where they differ from those of the request.
    """

    batch_id: str
    timestamp_ms: int
    sensors: dict[str, Any]  # numbers, once validated
    sensor_status: dict[str, str] = msgspec.field(default_factory=dict)
    boot_id: str | None = None
    firmware_version: str | None = None


# One entry of a request: a reading, or the reason why it could not be parsed.
Submission: TypeAlias = SubmittedReading | Rejection


def check_count(count: int) -> None:
    """Require 1 to 100 readings in a request."""
    if not count:
        raise Invalid(
            "readings must contain at least 1 reading", code="invalid_field", field="readings"
        )
    if count > MAX_READINGS:
        message = f"readings must contain at most {MAX_READINGS} readings, not {count}"
        raise Invalid(message, code="batch_size_exceeded", field="readings")


def check_readings(readings: Sequence[SubmittedReading]) -> None:
    """Raise `Invalid` with the name of the field if any reading is invalid."""
    ids = [reading.batch_id for reading in readings]
    if (
        not _batch_ids.fullmatch("".join(ids))
        or not 0 < min(map(len, ids)) <= max(map(len, ids)) <= MAX_BATCH_ID_LENGTH
    ):
        raise invalid_field(
            "batch_id",
            f"must have 1 to {MAX_BATCH_ID_LENGTH} letters, digits, '_', '-', ':' and '.'",
        )
    times = [reading.timestamp_ms for reading in readings]
    if not MIN_TIMESTAMP_MS <= min(times) <= max(times) < MAX_TIMESTAMP_MS:
        raise invalid_field(
            "timestamp_ms", "must be milliseconds since 1970, between the years 2000 and 2100"
        )
    for boot_id in {reading.boot_id for reading in readings}:
        if boot_id is not None:
            check_uuid4(boot_id, "boot_id")
    for version in {reading.firmware_version for reading in readings}:
        if version is not None:
            check_text(version, "firmware_version", 64)
    _check_sensors([reading.sensors for reading in readings])
    _check_statuses([reading.sensor_status for reading in readings])


def _check_sensors(sensors: Sequence[dict[str, Any]]) -> None:
    if max(map(len, sensors)) > MAX_SENSORS:
        raise invalid_field("sensors", f"must have at most {MAX_SENSORS} entries")
    if not all(are_names(names) for names in {*map(tuple, sensors)}):
        raise invalid_field("sensors", NAME_RULE)
    if _are_surely_storable(sensors):
        return
    for name, value in chain.from_iterable(map(dict.items, sensors)):
        if not _is_storable(value):
            raise invalid_field(
                f"sensors.{name}",
                f"must be 0 or a number from 1E-120 to 1E+120 with at most {MAX_DIGITS} digits",
            )


def _are_surely_storable(sensors: Sequence[dict[str, Any]]) -> bool:
    """A fast check that accepts the usual decimals; False means that each value must be checked."""
    try:
        exponents = [*map(Decimal.adjusted, chain.from_iterable(map(dict.values, sensors)))]
    except TypeError:  # an integer, or not a number
        return False
    return not exponents or _MIN_SAFE_EXPONENT <= min(exponents) <= max(exponents) < MAX_DIGITS


def _check_statuses(statuses: Sequence[Mapping[str, str]]) -> None:
    if max(map(len, statuses)) > MAX_SENSORS:
        raise invalid_field("sensor_status", f"must have at most {MAX_SENSORS} entries")
    # Usually all readings report the same statuses, so one check is enough.
    distinct = statuses[:1] if statuses.count(statuses[0]) == len(statuses) else statuses
    if not all(
        are_names(status) and SENSOR_STATUSES.issuperset(status.values()) for status in distinct
    ):
        raise invalid_field("sensor_status", "must map sensor names to ok or error")


def _is_storable(value: Any) -> bool:
    if type(value) not in (int, Decimal):
        return False
    exponent = Decimal(value).adjusted()
    if _MIN_SAFE_EXPONENT <= exponent < MAX_DIGITS or not value:
        return True
    size = Decimal(value).copy_abs()  # abs() would round to the precision of the context
    # Floats never have this many digits, but JSON integers may.
    return _MIN_NUMBER <= size <= _MAX_NUMBER and (
        exponent < 0 or len(str(int(size)).rstrip("0")) <= MAX_DIGITS
    )


def to_readings(
    sender: Sender,
    submitted: Sequence[SubmittedReading],
    friendly_name: str | None,
    now_ms: int,
) -> list[Reading]:
    """Convert validated readings to stored readings."""
    day_ahead = now_ms + DAY_MS
    return [
        Reading(
            sender.hardware_id,
            reading.batch_id,
            reading.timestamp_ms,
            sender.boot_id if reading.boot_id is None else check_uuid4(reading.boot_id, "boot_id"),
            sender.firmware_version
            if reading.firmware_version is None
            else reading.firmware_version,
            reading.sensors,
            reading.sensor_status,
            friendly_name,
            reading.timestamp_ms > day_ahead,
        )
        for reading in submitted
    ]
