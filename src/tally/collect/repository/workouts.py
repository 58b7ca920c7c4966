"""Items `WORKOUT#{workoutId}`: the latest state of each workout.

`index_attributes` alone decides in which indexes a workout is: GSI2 has the workouts that count, by
user and family; GSI3 has those that are not deleted, by user. Both sort by start date.
"""

from collections.abc import Mapping
from typing import Any

from tally.collect.model.records import Sport
from tally.collect.model.workouts import (
    MAX_COUNTED_WORKOUTS,
    MAX_WORKOUTS,
    Workout,
    WorkoutProjection,
    counted_family,
)
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    WORKOUT_PREFIX,
    family_pk,
    item_key,
    user_pk,
    workout_sk,
)
from tally.errors import Conflict
from tally.store.access import GetItem, Query, access, param
from tally.store.api import Put
from tally.store.errors import BoundExceeded
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item, Key

_PROJECTION = ("SK", "startDateUtc", "distanceMeters", "totalElevationGain", "isManual", "version")


def _within(start: str, end: str | None) -> Condition:
    """Build the key condition of a period.

    A sort key is longer than its date, so that BETWEEN excludes workouts that start at `end`.
    """
    return F("GSI2SK") >= start if end is None else F("GSI2SK").between(start, end)


_OF_USER = F("GSI3PK") == user_pk(param("userId"))
_OF_FAMILY = F("GSI2PK") == f"{user_pk(param('userId'))}#{param('family')}"


class Workouts:
    """Access patterns of workouts."""

    __slots__ = ()
    store: Store

    @access(
        "Get workout",
        GetItem(key=item_key(user_pk(param("userId")), workout_sk(param("workoutId")))),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Every event of an activity",
        frequency="Per event",
    )
    async def workout(self, user_id: str, workout_id: str) -> Workout | None:
        item = await self.store.get(
            COMMIT_COLLECT, item_key(user_pk(user_id), workout_sk(workout_id)), consistent=True
        )
        return None if item is None else read_workout(item)

    @access(
        "List workouts",
        Query(where=_OF_USER, index="GSI3", forward=False),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /workouts",
        frequency="Per request",
    )
    async def workouts(
        self, user_id: str, limit: int, start: Key | None
    ) -> tuple[list[Workout], Key | None]:
        """Return a page of workouts without deleted ones, and the start key of the next page."""
        page = await self.store.query(
            COMMIT_COLLECT,
            F("GSI3PK") == user_pk(user_id),
            index="GSI3",
            forward=False,
            limit=limit,
            start=start,
        )
        return [read_workout(item) for item in page.items], page.next

    @access(
        "Aggregate workouts",
        Query(
            where=(
                _OF_FAMILY & _within(param("start"), None),
                _OF_FAMILY & _within(param("start"), param("end")),
            ),
            index="GSI2",
            project=_PROJECTION,
        ),
        table=COMMIT_COLLECT,
        by="both",
        trigger="Every event, POST /milestones, POST /milestones/{id}/recompute",
        frequency="Per event",
        bound=MAX_WORKOUTS,
    )
    async def counted_workouts(
        self, user_id: str, family: Sport, start: str, end: str | None
    ) -> list[WorkoutProjection]:
        """Return the workouts that count for a family from `start` until before `end`.

        Raise Conflict if there are more than 3,000.
        """
        where = (F("GSI2PK") == family_pk(user_id, family)) & _within(start, end)
        items = self.store.items(COMMIT_COLLECT, where, index="GSI2", project=_PROJECTION)
        try:
            return [_workout_projection(item, family) async for item in items]
        except BoundExceeded as error:
            raise Conflict(
                f"More than {MAX_WORKOUTS} workouts of the sport {family.value} are in the period;"
                " choose a shorter period",
                code="too_many_workouts",
            ) from error

    @access(
        "Count workouts",
        Query(where=_OF_USER, index="GSI3", project=("SK",)),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /me",
        frequency="Per request",
        bound=MAX_COUNTED_WORKOUTS + 1,
    )
    async def count_workouts(self, user_id: str) -> int:
        """Count the workouts that are not deleted, up to one more than 10,000."""
        is_own = F("GSI3PK") == user_pk(user_id)
        found = self.store.items(
            COMMIT_COLLECT, is_own, index="GSI3", project=("SK",), overflow="stop"
        )
        return len([item async for item in found])


def index_attributes(workout: Workout) -> Item:
    """Return the index keys of a workout: none, those of GSI3, or those of both indexes."""
    if workout.is_deleted:
        return {}
    sort = f"{workout.started_at}#{workout.workout_id}"
    attributes: Item = {"GSI3PK": user_pk(workout.user_id), "GSI3SK": sort}
    family = counted_family(workout)
    if family is not None:
        attributes |= {"GSI2PK": family_pk(workout.user_id, family), "GSI2SK": sort}
    return attributes


def workout_put(workout: Workout, expected_version: int | None) -> Put:
    """Build the conditional put of the next version, for a transaction."""
    item = _item(workout) | {"version": (expected_version or 0) + 1}
    return Put(COMMIT_COLLECT, item, condition=has_version(expected_version))


def has_version(expected: int | None) -> Condition:
    """Build the condition that the stored version is this one; None: that there is no item."""
    if expected is None:
        return not_exists("PK")
    # Items that were written before workouts had versions lack the attribute.
    return F("version") == expected if expected else exists("PK") & not_exists("version")


def _item(workout: Workout) -> Item:
    item: Item = item_key(user_pk(workout.user_id), workout_sk(workout.workout_id)) | {
        "userId": workout.user_id,
        "sportType": workout.sport_type,
        "startDateUtc": workout.started_at,
        "distanceMeters": workout.distance,
        "totalElevationGain": workout.elevation,
        "movingSeconds": workout.moving_seconds,
        "elapsedSeconds": workout.elapsed_seconds,
        "eventTime": workout.event_time,
        "isDeleted": workout.is_deleted,
    }
    optional = {
        "activityId": workout.activity_id,
        "athleteId": workout.athlete_id,
        "name": workout.name or None,  # some DynamoDB-compatible services reject empty strings
        "deletedAtUtc": workout.deleted_at,
        "isFlagged": workout.is_flagged or None,
        "isManual": workout.is_manual or None,
        "duplicateOf": workout.duplicate_of,
        "isSeparated": workout.is_separated or None,
    }
    item |= {name: value for name, value in optional.items() if value is not None}
    return item | index_attributes(workout)


def read_workout(item: Mapping[str, Any]) -> Workout:
    """Build a workout from its item, in the table or in GSI3."""
    return Workout(
        user_id=item["userId"],
        workout_id=_workout_id(item),
        name=item.get("name", ""),
        sport_type=item["sportType"],
        started_at=item["startDateUtc"],
        distance=item["distanceMeters"],
        elevation=item["totalElevationGain"],
        moving_seconds=item["movingSeconds"],
        elapsed_seconds=item["elapsedSeconds"],
        event_time=item["eventTime"],
        version=item.get("version", 0),
        is_deleted=item["isDeleted"],
        deleted_at=item.get("deletedAtUtc"),
        is_flagged=item.get("isFlagged", False),
        is_manual=item.get("isManual", False),
        duplicate_of=item.get("duplicateOf"),
        is_separated=item.get("isSeparated", False),
        athlete_id=item.get("athleteId"),
    )


def _workout_id(item: Mapping[str, Any]) -> str:
    return str(item["SK"]).removeprefix(WORKOUT_PREFIX)


def _workout_projection(item: Mapping[str, Any], family: Sport) -> WorkoutProjection:
    return WorkoutProjection(
        _workout_id(item),
        family,
        item["startDateUtc"],
        item["distanceMeters"],
        item["totalElevationGain"],
        item.get("isManual", False),
        item.get("version", 0),
    )
