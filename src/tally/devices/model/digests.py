"""Digests of readings: whether two readings with one batch id are the same.

The digest covers what the board measured: the time, the values and the states of the sensors. It
omits the boot id and the firmware version, because a board that restarts between two attempts sends
the same reading with those of its new boot.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from tally.devices.model.records import Number

DIGEST_SIZE: Final = 8

_encode = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


def content_digest(
    timestamp_ms: int, sensors: Mapping[str, Number], sensor_status: Mapping[str, str]
) -> bytes:
    """Return the digest of a reading whose decimals are in their canonical form."""
    content = _encode((timestamp_ms, sensors, sensor_status))
    return blake2b(content, digest_size=DIGEST_SIZE).digest()
