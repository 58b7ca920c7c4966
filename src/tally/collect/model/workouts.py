"""Workouts from Strava and from files, and the rule which of them count.

A workout id names the source: `STRAVA#{activityId}` with twelve digits, or `FILE#{hash}`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tally.collect.model.records import Number, Sport

# The bound applies to the workouts of one sport within the period of one milestone.
MAX_WORKOUTS: Final = 3000
# GET /me counts up to so many workouts.
MAX_COUNTED_WORKOUTS: Final = 10_000
STRAVA_PREFIX: Final = "STRAVA#"
FILE_PREFIX: Final = "FILE#"
_workout_id_format = re.compile(r"STRAVA#[0-9]{12,20}|FILE#[0-9a-f]{32}")

# Strava sport types by family. Other types count for no milestone.
SPORT_FAMILIES: Final = {
    **dict.fromkeys(
        (
            "Ride",
            "VirtualRide",
            "GravelRide",
            "MountainBikeRide",
            "EBikeRide",
            "EMountainBikeRide",
            "Handcycle",
            "Velomobile",
        ),
        Sport.RIDE,
    ),
    **dict.fromkeys(("Run", "TrailRun", "VirtualRun", "TreadmillRun"), Sport.RUN),
    **dict.fromkeys(("Swim", "OpenWaterSwim"), Sport.SWIM),
    **dict.fromkeys(("Walk", "Hike"), Sport.WALK),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workout:
    """A workout as last read from its source. Every write increments `version`.

    Flat, because it mirrors one table item.
    """

    user_id: str
    workout_id: str
    name: str
    sport_type: str
    started_at: str
    distance: Number
    elevation: Number
    moving_seconds: int
    elapsed_seconds: int
    # The time of the latest event about it. For information: the version decides the order.
    event_time: int = 0
    # 0 for an item that was written before workouts had versions.
    version: int = 0
    is_deleted: bool = False
    deleted_at: str | None = None
    # Strava flags implausible activities, for example a car ride.
    is_flagged: bool = False
    # Typed in by the athlete, not recorded by a device.
    is_manual: bool = False
    # The id of the workout that counts instead, if two sources recorded the same one.
    duplicate_of: str | None = None
    # The owner declared that it is no duplicate.
    is_separated: bool = False
    # The athlete at Strava. None for a file, and for an item written before it was stored.
    athlete_id: int | None = None

    @property
    def activity_id(self) -> int | None:
        """The id of the activity at Strava; None for a file."""
        if not self.workout_id.startswith(STRAVA_PREFIX):
            return None
        return int(self.workout_id.removeprefix(STRAVA_PREFIX))

    def may_belong_to(self, athlete_id: int) -> bool:
        """Whether the tokens of an athlete can tell that the activity is deleted."""
        return self.athlete_id is None or self.athlete_id == athlete_id

    @property
    def is_file(self) -> bool:
        return self.workout_id.startswith(FILE_PREFIX)

    @property
    def is_duplicate(self) -> bool:
        return self.duplicate_of is not None and not self.is_separated


class WorkoutProjection(NamedTuple):
    """The attributes that progress depends on, of a workout that counts. Read by the thousand."""

    workout_id: str
    family: Sport
    started_at: str
    distance: Number
    elevation: Number
    is_manual: bool = False
    version: int = 0


def strava_workout_id(activity_id: int) -> str:
    return f"{STRAVA_PREFIX}{activity_id:012}"


def file_workout_id(file_id: str) -> str:
    return f"{FILE_PREFIX}{file_id}"


def is_workout_id(text: str) -> bool:
    """Whether a text can be the id of a workout; any other may be too long for a key."""
    return _workout_id_format.fullmatch(text) is not None


def counted_family(workout: Workout) -> Sport | None:
    """Return the family that a workout counts for.

    None if it is deleted, flagged, a duplicate, or of an unknown sport type.
    """
    if workout.is_deleted or workout.is_flagged or workout.is_duplicate:
        return None
    return SPORT_FAMILIES.get(workout.sport_type)


def merge_written(
    family: Sport, found: Iterable[WorkoutProjection], written: Iterable[Workout]
) -> list[WorkoutProjection]:
    """Merge workouts just written into what the index returned, because the index may lag.

    A written workout replaces the indexed one, unless the index already has a later version.
    """
    merged = {projection.workout_id: projection for projection in found}
    for workout in written:
        indexed = merged.get(workout.workout_id)
        if indexed is not None and 0 < workout.version < indexed.version:
            continue
        merged.pop(workout.workout_id, None)
        if counted_family(workout) is family:
            merged[workout.workout_id] = WorkoutProjection(
                workout.workout_id,
                family,
                workout.started_at,
                workout.distance,
                workout.elevation,
                workout.is_manual,
                workout.version,
            )
    return list(merged.values())
