"""Adds index keys to `WORKOUT#` items that were written before GSI2 and GSI3 existed.

`PROFILE` records in `workoutsIndexed` that all workouts of the user have them.
"""

from typing import Final

from tally.collect.model.workouts import Workout
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    PROFILE,
    WORKOUT_PREFIX,
    item_key,
    user_pk,
    workout_sk,
)
from tally.collect.repository.workouts import has_version, index_attributes, read_workout
from tally.store.access import GetItem, Query, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists
from tally.store.store import Store
from tally.store.values import Key

INDEX_PAGE_SIZE: Final = 500


class WorkoutIndexing:
    """Access patterns of indexing."""

    __slots__ = ()
    store: Store

    @access(
        "Check whether workouts are indexed",
        GetItem(key=item_key(user_pk(param("userId")), PROFILE), project=("PK", "workoutsIndexed")),
        table=COMMIT_COLLECT,
        by="both",
        trigger="Every use of workouts",
        frequency="Per user and hour",
    )
    async def are_workouts_indexed(self, user_id: str) -> bool:
        """Whether all workouts have index keys. True without a profile: there is no account."""
        item = await self.store.get(
            COMMIT_COLLECT,
            item_key(user_pk(user_id), PROFILE),
            project=("PK", "workoutsIndexed"),
            consistent=True,
        )
        return item is None or item.get("workoutsIndexed", False)

    @access(
        "Mark workouts as indexed",
        UpdateItem(key=item_key(user_pk(param("userId")), PROFILE), condition=exists("PK")),
        table=COMMIT_COLLECT,
        by="system",
        trigger="The first use of workouts that were written before GSI2 and GSI3 existed",
        frequency="Once per user",
    )
    async def mark_workouts_indexed(self, user_id: str) -> None:
        try:
            await self.store.update(
                COMMIT_COLLECT,
                item_key(user_pk(user_id), PROFILE),
                F("workoutsIndexed").set(True),
                condition=exists("PK"),
            )
        except ConditionFailed:
            return  # the account is being deleted

    @access(
        "Read workouts for indexing",
        Query(where=(F("PK") == user_pk(param("userId"))) & F("SK").begins_with(WORKOUT_PREFIX)),
        table=COMMIT_COLLECT,
        by="system",
        trigger="The first use of workouts that were written before GSI2 and GSI3 existed",
        frequency="Once per user",
    )
    async def workouts_without_keys(
        self, user_id: str, start: Key | None
    ) -> tuple[list[Workout], Key | None]:
        """Return the workouts of a page that lack index keys, and the start of the next page."""
        page = await self.store.query(
            COMMIT_COLLECT,
            (F("PK") == user_pk(user_id)) & F("SK").begins_with(WORKOUT_PREFIX),
            limit=INDEX_PAGE_SIZE,
            start=start,
            consistent=True,
        )
        lacking = [item for item in page.items if "version" not in item and "GSI3PK" not in item]
        alive = [read_workout(item) for item in lacking if not item["isDeleted"]]
        return alive, page.next

    @access(
        "Add index keys to workout",
        UpdateItem(
            key=item_key(user_pk(param("userId")), workout_sk(param("workoutId"))),
            condition=has_version(0),
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="The first use of workouts that were written before GSI2 and GSI3 existed",
        frequency="Once per old workout",
    )
    async def add_index_keys(self, workout: Workout) -> None:
        """Add the index keys to an item without them, unless it has been written since."""
        changes = [F(name).set(value) for name, value in index_attributes(workout).items()]
        key = item_key(user_pk(workout.user_id), workout_sk(workout.workout_id))
        try:
            await self.store.update(COMMIT_COLLECT, key, *changes, condition=has_version(0))
        except ConditionFailed:
            return  # a writer has replaced it, with its keys, or the account is deleted
