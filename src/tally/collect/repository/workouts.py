"""Items `WORKOUT#STRAVA#{activityId}`: what Strava told of a person's activities, the newest state of each."""

from collections.abc import Mapping
from typing import Any

from tally.collect.model import MAX_WORKOUTS, Effort, Workout
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    CONNECTION,
    WORKOUTS,
    at,
    refuse_conflict,
    user,
    workout,
)
from tally.errors import Conflict
from tally.store.access import GetItem, Query, TransactWriteItems, access
from tally.store.api import Check, Put
from tally.store.errors import BoundExceeded, TransactionCancelled
from tally.store.expressions import Condition, F, not_exists
from tally.store.store import Store
from tally.store.values import Item, Key

_COUNTED = ("sportType", "startDateUtc", "distanceMeters", "totalElevationGain", "isDeleted")
_DELETED = True


class Workouts:
    """Activities of one person."""

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
            COMMIT_COLLECT, at(user(user_id), workout(activity_id)), consistent=True
        )
        return None if item is None else _workout(item)

    @access(
        "Put workout",
        TransactWriteItems,
        table=COMMIT_COLLECT,
        key="WORKOUT#STRAVA#{activityId} absent or of an eventTime no later than this; STRAVA#CONNECTION of this athlete",
        by="system",
        trigger="Every event of an activity",
        frequency="Per event",
    )
    async def put_workout(self, found: Workout, athlete_id: int) -> bool:
        """Whether it was written; False where a newer state stands there, or the athlete is no longer linked."""
        writes = (
            Put(
                COMMIT_COLLECT,
                _item(found),
                condition=not_exists("PK") | (F("eventTime") <= found.event_time),
            ),
            Check(
                COMMIT_COLLECT, at(user(found.user_id), CONNECTION), F("athleteId") == athlete_id
            ),
        )
        try:
            await self.store.transact(writes)
        except TransactionCancelled as cancelled:
            refuse_conflict(cancelled)
            return False
        return True

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
        """A page of workouts that are not deleted, and where the next page starts."""
        page = await self.store.query(
            COMMIT_COLLECT,
            _of(user_id),
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
    async def efforts(self, user_id: str) -> list[Effort]:
        """What counts of all workouts; Conflict where there are more than can be looked at."""
        counted = self.store.items(COMMIT_COLLECT, _of(user_id), project=_COUNTED, consistent=True)
        try:
            return [_effort(item) async for item in counted]
        except BoundExceeded as error:
            raise Conflict(
                f"There are more than {MAX_WORKOUTS} workouts", code="too_many_workouts"
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
        """How many there are, those that were deleted left out; no more than 3000 are looked at."""
        counted = 0
        async for item in self.store.items(
            COMMIT_COLLECT, _of(user_id), project=("isDeleted",), overflow="stop"
        ):
            counted += not item["isDeleted"]
        return counted


def _of(user_id: str) -> Condition:
    return (F("PK") == user(user_id)) & F("SK").begins_with(WORKOUTS)


def _item(found: Workout) -> Item:
    item: Item = at(user(found.user_id), workout(found.activity_id)) | {
        "userId": found.user_id,
        "activityId": found.activity_id,
        "sportType": found.sport_type,
        "startDateUtc": found.started_at,
        "distanceMeters": found.distance,
        "totalElevationGain": found.elevation,
        "movingSeconds": found.moving_seconds,
        "elapsedSeconds": found.elapsed_seconds,
        "eventTime": found.event_time,
        "isDeleted": found.is_deleted,
    }
    if found.name:  # an empty text is not for every service that speaks DynamoDB
        item["name"] = found.name
    if found.deleted_at is not None:
        item["deletedAtUtc"] = found.deleted_at
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


def _effort(item: Mapping[str, Any]) -> Effort:
    return Effort(
        item["sportType"],
        item["startDateUtc"],
        item["distanceMeters"],
        item["totalElevationGain"],
        item["isDeleted"],
    )
