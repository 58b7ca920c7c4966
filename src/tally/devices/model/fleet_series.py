"""A sensor of several boards in the same intervals, and the latest readings of a fleet."""

from collections.abc import Sequence
from typing import NamedTuple

from tally.devices.model.records import Bucket, Device, Reading, Series


class BoardSeries(NamedTuple):
    """The series of one board; None where it has no value."""

    device: Device
    buckets: Sequence[Bucket | None]


class AlignedSeries(NamedTuple):
    """A sensor of several boards; `starts` has the start of each interval with a value."""

    sensor: str
    interval_ms: int
    starts: Sequence[int]
    boards: Sequence[BoardSeries]


class LatestReading(NamedTuple):
    """A device and its latest reading, if it has any."""

    device: Device
    reading: Reading | None


def align(sensor: str, found: Sequence[tuple[Device, Series]], interval_ms: int) -> AlignedSeries:
    """Bring the series of boards into common intervals."""
    starts = sorted({bucket.from_ms for _, series in found for bucket in series.buckets})
    boards = []
    for device, series in found:
        by_start = {bucket.from_ms: bucket for bucket in series.buckets}
        boards.append(BoardSeries(device, [by_start.get(start) for start in starts]))
    return AlignedSeries(sensor, interval_ms, starts, boards)
