"""Validation of single fields. Each check returns the valid value or raises `Invalid`."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from tally.devices.model.records import MAX_SENSORS, MAX_TEXT_LENGTH, Capabilities, Sender
from tally.errors import Invalid

NAME_RULE: Final = "must be names of 1 to 64 letters, digits, '_', '-' and '.'"

_hardware_id = re.compile(r"[0-9A-F]{2}(:[0-9A-F]{2}){5}")
_uuid4 = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE
)
_name = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_CACHED_NAMES: Final = 4096
_valid_names: Final[set[str]] = set()


def check_hardware_id(value: str) -> str:
    """Require a MAC address in upper case."""
    if not _hardware_id.fullmatch(value):
        raise invalid_field(
            "hardware_id", "must be an upper-case MAC address such as AA:BB:CC:DD:EE:FF"
        )
    return value


def check_uuid4(value: str, field: str) -> str:
    """Require a version 4 UUID and return it in lower case."""
    canonical = _canonical_uuid4(value) if len(value) == 36 else None
    if canonical is None:
        raise invalid_field(field, "must be a version 4 UUID")
    return canonical


@lru_cache(maxsize=20_000)
def _canonical_uuid4(value: str) -> str | None:
    """Cached, because boards send the same boot id with every reading.

    The caller checks the length first, which bounds the memory of the cache.
    """
    return value.lower() if _uuid4.fullmatch(value) else None


def are_names(values: Iterable[str]) -> bool:
    """Whether all values are valid names.

    Valid names are cached: boards have few sensors and repeat their names in every reading.
    """
    return _valid_names.issuperset(values) or all(_is_name(value) for value in values)


def _is_name(value: str) -> bool:
    if not _name.fullmatch(value):
        return False
    if len(_valid_names) < _MAX_CACHED_NAMES:
        _valid_names.add(value)
    return True


def check_text(value: str, field: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Require a non-empty printable text of limited length."""
    if not 0 < len(value) <= max_length or not value.isprintable():
        raise invalid_field(field, f"must have 1 to {max_length} printable characters")
    return value


def check_capabilities(capabilities: Capabilities) -> Capabilities:
    """Require valid names and a limited number of sensors and features."""
    if not are_names(capabilities.sensors):
        raise invalid_field("capabilities.sensors", NAME_RULE)
    if not are_names(capabilities.features):
        raise invalid_field("capabilities.features", NAME_RULE)
    if len(capabilities.sensors) > MAX_SENSORS or len(capabilities.features) > MAX_SENSORS:
        raise invalid_field(
            "capabilities", f"must have at most {MAX_SENSORS} sensors and {MAX_SENSORS} features"
        )
    return capabilities


@lru_cache(maxsize=20_000)
def check_sender(sender: Sender) -> Sender:
    """Require a valid hardware id, boot id and firmware version.

    Cached, because a board sends the same with every request. Only valid senders are cached, which
    are short.
    """
    check_hardware_id(sender.hardware_id)
    check_text(sender.firmware_version, "firmware_version", 64)
    boot_id = check_uuid4(sender.boot_id, "boot_id")
    return sender if boot_id == sender.boot_id else replace(sender, boot_id=boot_id)


def invalid_field(field: str, rule: str) -> Invalid:
    """Build the error for a field that breaks a rule."""
    return Invalid(f"{field} {rule}", code="invalid_field", field=field)
