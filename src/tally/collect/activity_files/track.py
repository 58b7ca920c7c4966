"""Sums the points of a track while a parser reads them, in constant memory.

Distance is the sum of great-circle distances between consecutive points, unless the points carry
the distance of the device. A climb counts when it rises at least 3 m above the last low, which
ignores the noise of barometers and GPS. Time counts as moving at 0.5 m/s and more.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NamedTuple

from tally.collect.model.files import (
    MAX_POINTS,
    ParsedFile,
    check_totals,
    clean_label,
    implausible,
    sport_type_of,
    too_complex,
)

EARTH_RADIUS_METRES: Final = 6_371_008.8
MIN_CLIMB_METRES: Final = 3.0
MIN_MOVING_SPEED: Final = 0.5
MIN_ELEVATION: Final = -1_000.0
MAX_ELEVATION: Final = 20_000.0
MAX_DEVICE_METRES: Final = 1e9


class TrackPoint(NamedTuple):
    """A point of a track: epoch seconds, degrees, metres. A device may omit any of them."""

    time: float | None = None
    latitude: float | None = None
    longitude: float | None = None
    elevation: float | None = None
    distance: float | None = None


class Track:
    """The totals of the points added so far."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._points = 0
        self._last: TrackPoint | None = None
        # The last elevation, and the lowest one since the last climb.
        self._elevation: float | None = None
        self._low = 0.0
        self._is_resuming = False
        self._device_distance: float | None = None
        self._path_metres = 0.0
        self.start: float | None = None
        self.end: float | None = None
        self.climb = 0.0
        self.moving_seconds = 0.0

    @property
    def elapsed_seconds(self) -> float | None:
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def distance(self) -> float:
        return self._path_metres if self._device_distance is None else self._device_distance

    def add(self, point: TrackPoint) -> None:
        self._points += 1
        if self._points > self._max_points:
            raise too_complex(f"The file must have at most {self._max_points} points")
        check_point(point)
        if point.time is not None:
            self.start = point.time if self.start is None else min(self.start, point.time)
            self.end = point.time if self.end is None else max(self.end, point.time)
        if point.distance is not None:
            self._device_distance = max(self._device_distance or 0.0, point.distance)
        if point.elevation is not None:
            self._add_elevation(point.elevation)
        if self._last is not None:
            self._add_step(self._last, point)
        self._last = point

    def end_segment(self) -> None:
        """The recording paused here: the way to the next point does not count, nor its climb."""
        self._last = None
        self._is_resuming = True

    def _add_elevation(self, elevation: float) -> None:
        if self._elevation is None:
            self._low = elevation
        elif self._is_resuming:
            self._low += elevation - self._elevation
        self._elevation, self._is_resuming = elevation, False
        if elevation < self._low:
            self._low = elevation
        elif elevation >= self._low + MIN_CLIMB_METRES:
            self.climb += elevation - self._low
            self._low = elevation

    def _add_step(self, before: TrackPoint, after: TrackPoint) -> None:
        metres = _step_metres(before, after)
        if before.distance is None or after.distance is None:
            self._path_metres += metres
        if before.time is not None and after.time is not None:
            seconds = after.time - before.time
            if seconds > 0 and metres / seconds >= MIN_MOVING_SPEED:
                self.moving_seconds += seconds


def check_point(point: TrackPoint) -> None:
    """Require values on Earth."""
    for name, value, low, high in (
        ("latitude", point.latitude, -90.0, 90.0),
        ("longitude", point.longitude, -180.0, 180.0),
        ("elevation", point.elevation, MIN_ELEVATION, MAX_ELEVATION),
        ("distance", point.distance, 0.0, MAX_DEVICE_METRES),
    ):
        # NaN compares false with both ends.
        if value is not None and not low <= value <= high:
            raise implausible(f"The {name} of a point must be from {low:g} to {high:g}")


def build_summary(track: Track, totals: Mapping[str, float | None], **labels: str) -> ParsedFile:
    """Return the summary of a file.

    Totals of the device (`distance`, `elevation`, `moving`, `elapsed`, `start`) take precedence
    over those of the points. `labels` are `file_id`, `file_format`, `name` and `sport`.
    """
    start = _first(totals.get("start"), track.start)
    if start is None:
        raise implausible("The file must contain the time of the workout")
    elapsed = _first(totals.get("elapsed"), track.elapsed_seconds, totals.get("moving")) or 0.0
    moving = _first(totals.get("moving"), track.moving_seconds) or 0.0
    distance = _metres(_first(totals.get("distance"), track.distance))
    elevation = _metres(_first(totals.get("elevation"), track.climb))
    check_totals(distance, elevation, moving, elapsed)
    return ParsedFile(
        file_id=labels["file_id"],
        file_format=labels["file_format"],
        name=clean_label(labels["name"]),
        sport_type=sport_type_of(labels["sport"]),
        started_at=_rfc3339(start),
        distance=distance,
        elevation=elevation,
        moving_seconds=round(min(moving, elapsed)),
        elapsed_seconds=round(elapsed),
    )


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _metres(value: float | None) -> Decimal:
    if value is None or not math.isfinite(value):
        raise implausible("Distances and elevations must be numbers")
    return Decimal(str(value)).quantize(Decimal("0.001"))


def _rfc3339(epoch: float) -> str:
    try:
        time = datetime.fromtimestamp(epoch, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise implausible("The time of the workout must be a date of our era") from error
    return time.isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


def _step_metres(before: TrackPoint, after: TrackPoint) -> float:
    """Return the distance between two points: as the device measured it, or on the sphere."""
    if before.distance is not None and after.distance is not None:
        return max(0.0, after.distance - before.distance)
    if (
        before.latitude is None
        or before.longitude is None
        or after.latitude is None
        or after.longitude is None
    ):
        return 0.0
    return great_circle_metres(before.latitude, before.longitude, after.latitude, after.longitude)


def great_circle_metres(
    latitude: float, longitude: float, latitude2: float, longitude2: float
) -> float:
    """Return the haversine distance of two points given in degrees."""
    north, north2 = math.radians(latitude), math.radians(latitude2)
    half = math.sin((north2 - north) / 2) ** 2
    half += (
        math.cos(north) * math.cos(north2) * math.sin(math.radians(longitude2 - longitude) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_METRES * math.asin(math.sqrt(min(1.0, half)))
