"""Readings as the table `device_readings` stores them, and the outcomes of storing them."""

from collections.abc import Mapping
from typing import Any

from tally import errors
from tally.devices.model.digests import content_digest
from tally.devices.model.records import Reading, StoredBatch
from tally.store.access import to_unavailable
from tally.store.errors import StoreError, StoreUnavailable, TransactionCancelled
from tally.store.values import Item


def optional_attributes(reading: Reading) -> Item:
    """Return the attributes that only some readings have."""
    item: Item = {} if reading.friendly_name is None else {"friendly_name": reading.friendly_name}
    return {**item, "clock_ahead": True} if reading.clock_ahead else item


def reading_digest(reading: Reading) -> bytes:
    return content_digest(reading.timestamp_ms, reading.sensors, reading.sensor_status)


def store_outcome(error: StoreError, reading: Reading) -> StoredBatch | errors.Unavailable:
    """Map a failed condition to the stored batch, and other failures to a retryable error."""
    if isinstance(error, TransactionCancelled):
        reason = error.reasons[0]
        if not reason.condition_failed:
            return to_unavailable(StoreUnavailable(str(error)))
        # The item has expired since the condition failed: the reading was a duplicate then.
        item = reason.item or {"hardware_id": reading.hardware_id}
        return StoredBatch(item["hardware_id"], item.get("content_digest"))
    if isinstance(error, StoreUnavailable):
        return to_unavailable(error)
    raise error


def decode_reading(item: Mapping[str, Any]) -> Reading:
    return Reading(
        hardware_id=item["hardware_id"],
        batch_id=item["batch_id"],
        timestamp_ms=item["timestamp_ms"],
        boot_id=item["boot_id"],
        firmware_version=item["firmware_version"],
        sensors=item["sensors"],
        sensor_status=item["sensor_status"],
        friendly_name=item.get("friendly_name"),
        clock_ahead=item.get("clock_ahead", False),
    )
