"""What boards say that they measured: the rules that it keeps, and the readings that it becomes.

A board sends up to a hundred at a time, all much alike, and thousands come in a second. So the
rules are told of many at once, a field at a time; whoever has to know which of them is at fault
asks again for each on its own.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from tally.devices.model import (
    DAY_MS,
    EARLIEST_MS,
    LATEST_MS,
    MAX_BATCH_ID,
    MAX_READINGS,
    MAX_SENSORS,
    STATUSES,
    Reading,
    Rejection,
    Sender,
    are_names,
    check_text,
    check_uuid4,
    refusal,
)
from tally.errors import Invalid

MAX_DIGITS: Final = 38
_LARGEST: Final = Decimal("1E+120")
_SMALLEST: Final = Decimal("1E-120")
_SURELY_LARGE: Final = -119  # the power of ten of the first digit
_batch_ids = re.compile(r"[A-Za-z0-9_:.-]+")


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A reading as a board sends it.

    Boot and firmware are told where they are not those of the request.
    """

    batch_id: str
    timestamp_ms: int
    sensors: dict[str, Any]  # numbers, if it keeps the rules
    sensor_status: dict[str, str] = msgspec.field(default_factory=dict)
    boot_id: str | None = None
    firmware_version: str | None = None


# What a board sent in one place of its request: a reading, or why it is none.
Sent: TypeAlias = Measured | Rejection


def check_count(count: int) -> None:
    """Refuse a request with no readings or too many."""
    if not count:
        raise Invalid(
            "readings must hold at least one reading", code="invalid_format", field="readings"
        )
    if count > MAX_READINGS:
        message = f"readings must hold at most {MAX_READINGS} readings, not {count}"
        raise Invalid(message, code="batch_size_exceeded", field="readings")


def check_measured(measured: Sequence[Measured]) -> None:
    """Invalid, which names the field, if one of them breaks a rule."""
    ids = [each.batch_id for each in measured]
    if (
        not _batch_ids.fullmatch("".join(ids))
        or not 0 < min(map(len, ids)) <= max(map(len, ids)) <= MAX_BATCH_ID
    ):
        raise refusal(
            "batch_id", f"must have 1 to {MAX_BATCH_ID} letters, digits, '_', '-', ':' and '.'"
        )
    times = [each.timestamp_ms for each in measured]
    if not EARLIEST_MS <= min(times) <= max(times) < LATEST_MS:
        raise refusal(
            "timestamp_ms",
            "must be milliseconds since 1970 of a moment between the years 2000 and 2100",
        )
    for boot_id in {each.boot_id for each in measured}:
        if boot_id is not None:
            check_uuid4(boot_id, "boot_id")
    for version in {each.firmware_version for each in measured}:
        if version is not None:
            check_text(version, "firmware_version", 64)
    _check_sensors([each.sensors for each in measured])
    _check_statuses([each.sensor_status for each in measured])


def _check_sensors(sensors: Sequence[dict[str, Any]]) -> None:
    if max(map(len, sensors)) > MAX_SENSORS:
        raise refusal("sensors", f"must not be more than {MAX_SENSORS}")
    if not all(are_names(names) for names in {*map(tuple, sensors)}):
        raise refusal("sensors", "must have names of 1 to 64 letters, digits, '_', '-' and '.'")
    if _are_surely_storable(sensors):
        return
    for name, value in chain.from_iterable(map(dict.items, sensors)):
        if not _is_storable(value):
            raise refusal(
                f"sensors.{name}",
                f"must be a number: 0, or one of at most {MAX_DIGITS} digits from 1E-120 to 1E+120",
            )


def _are_surely_storable(sensors: Sequence[dict[str, Any]]) -> bool:
    try:
        powers = [*map(Decimal.adjusted, chain.from_iterable(map(dict.values, sensors)))]
    except TypeError:  # an integer, or no number at all
        return False
    return not powers or _SURELY_LARGE <= min(powers) <= max(powers) < MAX_DIGITS


def _check_statuses(statuses: Sequence[Mapping[str, str]]) -> None:
    if max(map(len, statuses)) > MAX_SENSORS:
        raise refusal("sensor_status", f"must not be more than {MAX_SENSORS}")
    # Mostly all sensors are well, and the boards say so each time.
    different = statuses[:1] if statuses.count(statuses[0]) == len(statuses) else statuses
    if not all(are_names(each) and STATUSES.issuperset(each.values()) for each in different):
        raise refusal("sensor_status", "must give a sensor's name the value ok or error")


def _is_storable(value: Any) -> bool:
    if type(value) not in (int, Decimal):
        return False
    power = Decimal(value).adjusted()
    if _SURELY_LARGE <= power < MAX_DIGITS or not value:
        return True
    size = Decimal(value).copy_abs()  # abs() would round to the digits of the context
    # A float never has so many digits; an integer of any length is JSON.
    return _SMALLEST <= size <= _LARGEST and (
        power < 0 or len(str(int(size)).rstrip("0")) <= MAX_DIGITS
    )


def readings_of(
    sender: Sender, measured: Sequence[Measured], friendly_name: str | None, now_ms: int
) -> list[Reading]:
    """The readings that they are, once they have been found good."""
    day_ahead = now_ms + DAY_MS
    return [
        Reading(
            sender.hardware_id,
            each.batch_id,
            each.timestamp_ms,
            sender.boot_id if each.boot_id is None else check_uuid4(each.boot_id, "boot_id"),
            sender.firmware_version if each.firmware_version is None else each.firmware_version,
            each.sensors,
            each.sensor_status,
            friendly_name,
            each.timestamp_ms > day_ahead,
        )
        for each in measured
    ]
