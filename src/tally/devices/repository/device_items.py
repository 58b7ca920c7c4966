"""What registrations and readings change of the items of the table `devices`."""

from collections.abc import Mapping
from typing import Any

from tally.devices.model.records import Device
from tally.store.expressions import Action, F
from tally.store.values import Item


def registered_attributes(device: Device) -> Item:
    """Return what every registration replaces."""
    capabilities = device.capabilities
    return {
        "capabilities": {
            "sensors": list(capabilities.sensors),
            "features": dict(capabilities.features),
        },
        "last_boot_id": device.last_boot_id,
        "firmware_version": device.firmware_version,
    }


def is_unregistered(old: Mapping[str, Any] | None) -> bool:
    """Whether a device did not exist, or had only sent data."""
    return not old or old.get("is_registered") is False


def clock_offset(device: Device) -> tuple[Action, ...]:
    offset = device.clock_offset_ms
    return () if offset is None else (F("clock_offset_ms").set(offset),)
