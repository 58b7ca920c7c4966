"""Items `WORKOUT#STRAVA#{activityId}`: the latest state of each activity."""

from collections.abc import Mapping
from typing import Any

from tally.collect.model.records import MAX_WORKOUTS, Workout, WorkoutProjection
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    CONNECTION,
    WORKOUT_PREFIX,
    item_key,
    transact_if_met,
    user_pk,
    workout_sk,
)
from tally.errors import Conflict
from tally.store.access import GetItem, Query, TransactWriteItems, access
from tally.store.api import Check, Put
from tally.store.errors import BoundExceeded
from tally.store.expressions import Condition, F, not_exists
from tally.store.store import Store
from tally.store.values import Item, Key

_PROJECTION = ("sportType", "startDateUtc", "distanceMeters", "totalElevationGain", "isDeleted")
_DELETED = True


class Workouts:
    """Access patterns of workouts."""

    __slots__ = ()
    store: Store

    @access(
        "Get workout",
        GetItem,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId}, SK=WORKOUT#STRAVA#{activityId}",
        by="system",
        trigger="An event that deletes or follows another",
        frequency="Per event",
    )
    async def workout(self, user_id: str, activity_id: int) -> Workout | None:
        item = await self.store.get(
            COMMIT_COLLECT, item_key(user_pk(user_id), workout_sk(activity_id)), consistent=True
        )
        return None if item is None else _workout(item)

    @access(
        "Put workout",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="WORKOUT#STRAVA#{activityId} absent or with eventTime <= :eventTime;"
        " STRAVA#CONNECTION of this athlete",
        by="system",
        trigger="Every event of an activity",
        frequency="Per event",
    )
    async def put_workout(self, workout: Workout, athlete_id: int) -> bool:
        """Write a workout. Return False if it is outdated or the athlete is no longer linked."""
        writes = (
            Put(
                COMMIT_COLLECT,
                _item(workout),
                condition=not_exists("PK") | (F("eventTime") <= workout.event_time),
            ),
            Check(
                COMMIT_COLLECT,
                item_key(user_pk(workout.user_id), CONNECTION),
                F("athleteId") == athlete_id,
            ),
        )
        return await transact_if_met(self.store, writes)

    @access(
        "List workouts",
        Query.filtered,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId} AND begins_with(SK, WORKOUT#STRAVA#), newest first",
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
            _of_user(user_id),
            filter=F("isDeleted") != _DELETED,
            forward=False,
            limit=limit,
            start=start,
        )
        return [_workout(item) for item in page.items], page.next

    @access(
        "Aggregate workouts",
        Query,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId} AND begins_with(SK, WORKOUT#STRAVA#), five attributes",
        by="both",
        trigger="Every event, POST /milestones, POST /milestones/{id}/recompute",
        frequency="Per event",
        bound=MAX_WORKOUTS,
    )
    async def workout_projections(self, user_id: str) -> list[WorkoutProjection]:
        """Return the projections of all workouts; Conflict if there are more than 3,000."""
        items = self.store.items(
            COMMIT_COLLECT, _of_user(user_id), project=_PROJECTION, consistent=True
        )
        try:
            return [_workout_projection(item) async for item in items]
        except BoundExceeded as error:
            raise Conflict(
                f"The account has more than {MAX_WORKOUTS} workouts", code="too_many_workouts"
            ) from error

    @access(
        "Count workouts",
        Query,
        table=COMMIT_COLLECT,
        key="PK=USER#{userId} AND begins_with(SK, WORKOUT#STRAVA#), one attribute",
        by="user",
        trigger="GET /me",
        frequency="Per request",
        bound=MAX_WORKOUTS,
    )
    async def count_workouts(self, user_id: str) -> int:
        """Count the workouts that are not deleted, among the first 3,000."""
        count = 0
        async for item in self.store.items(
            COMMIT_COLLECT, _of_user(user_id), project=("isDeleted",), overflow="stop"
        ):
            count += not item["isDeleted"]
        return count


def _of_user(user_id: str) -> Condition:
    return (F("PK") == user_pk(user_id)) & F("SK").begins_with(WORKOUT_PREFIX)


def _item(workout: Workout) -> Item:
    item: Item = item_key(user_pk(workout.user_id), workout_sk(workout.activity_id)) | {
        "userId": workout.user_id,
        "activityId": workout.activity_id,
        "sportType": workout.sport_type,
        "startDateUtc": workout.started_at,
        "distanceMeters": workout.distance,
        "totalElevationGain": workout.elevation,
        "movingSeconds": workout.moving_seconds,
        "elapsedSeconds": workout.elapsed_seconds,
        "eventTime": workout.event_time,
        "isDeleted": workout.is_deleted,
    }
    if workout.name:  # some DynamoDB-compatible services reject empty strings
        item["name"] = workout.name
    if workout.deleted_at is not None:
        item["deletedAtUtc"] = workout.deleted_at
    return item


def _workout(item: Mapping[str, Any]) -> Workout:
    return Workout(
        user_id=item["userId"],
        activity_id=item["activityId"],
        name=item.get("name", ""),
        sport_type=item["sportType"],
        started_at=item["startDateUtc"],
        distance=item["distanceMeters"],
        elevation=item["totalElevationGain"],
        moving_seconds=item["movingSeconds"],
        elapsed_seconds=item["elapsedSeconds"],
        event_time=item["eventTime"],
        is_deleted=item["isDeleted"],
        deleted_at=item.get("deletedAtUtc"),
    )


def _workout_projection(item: Mapping[str, Any]) -> WorkoutProjection:
    return WorkoutProjection(
        item["sportType"],
        item["startDateUtc"],
        item["distanceMeters"],
        item["totalElevationGain"],
        item["isDeleted"],
    )
