"""Roll-ups of sensors as the table `device_rollups` stores them."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from tally.devices.model.rollups import SensorRollup
from tally.store.values import Item


class StateChanged(Exception):
    """Another consumer, or a rebuild, has changed the state: read it again."""


class TransactionTooLarge(Exception):
    """The roll-ups do not fit into one transaction: apply fewer changes at once."""


def encode_rollup(rollup: SensorRollup) -> list[Any]:
    """The sum is text, because it may have more digits than a number of the store."""
    return [
        rollup.count,
        str(rollup.total),
        rollup.minimum,
        rollup.maximum,
        *rollup.first,
        *rollup.last,
    ]


def decode_rollup(entry: Sequence[Any]) -> SensorRollup:
    count, total, minimum, maximum, first_at, first, last_at, last = entry
    return SensorRollup(count, Decimal(total), minimum, maximum, (first_at, first), (last_at, last))


def rollup_start(item: Item) -> int:
    return int(item["bucket"].partition("#")[2])
