"""Copies of workouts: reads and writes that decide which of them counts.

The attribute `importsVersion` of PROFILE serializes the decisions of one user. It is absent until
the first import. Every write of a workout requires that it is unchanged since the writer looked for
copies, and a write with copies increments it. Reads are consistent and use the table, not an index:
a copy that an index does not show yet would count twice, and progress never decreases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tally.collect.model.records import StravaConnection
from tally.collect.model.workouts import FILE_PREFIX, Workout
from tally.collect.repository.connections import IS_LINK, is_link
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    CONNECTION,
    PROFILE,
    WORKOUT_PREFIX,
    item_key,
    user_pk,
    workout_sk,
)
from tally.collect.repository.workouts import has_version, read_workout, workout_put
from tally.errors import Conflict
from tally.store.access import (
    ConditionCheck,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Check, Update, Write
from tally.store.errors import BoundExceeded, TransactionCancelled
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.store import Store
from tally.store.values import Item

# Imports stop here.
MAX_FILES: Final = 5_000
# More, because concurrent imports may exceed the limit.
MAX_INSPECTED_FILES: Final = 6_000
MAX_INSPECTED: Final = 50_000
_MAX_CHANGES: Final = 98  # of a transaction, beside the profile and the connection
_PROFILE_KEY: Final = item_key(user_pk(param("userId")), PROFILE)


class CopiesOutcome(Enum):
    """The result of a write."""

    WRITTEN = auto()
    # Another writer changed the workout, or the athlete is no longer linked.
    OUTDATED = auto()
    # Another decision about this user was faster.
    LOST_RACE = auto()


@dataclass(frozen=True, slots=True)
class CopiesWrite:
    """The next versions of a workout and of the copies that change with it, the workout first.

    Each has its expected version; None if it is absent. `imports_version` is the one read before
    the copies. `connection` is None for a file.
    """

    changes: Sequence[tuple[Workout, int | None]]
    imports_version: int
    connection: StravaConnection | None
    is_decision: bool


def _has_imports_version(version: int) -> Condition:
    if version:
        return F("importsVersion") == version
    return exists("PK") & not_exists("importsVersion")


_OF_USER: Final = F("PK") == user_pk(param("userId"))
_STARTS_BETWEEN: Final = F("startDateUtc").between(param("start"), param("end"))
_IS_CURRENT: Final = (_has_imports_version(param("read")), _has_imports_version(0))


class Copies:
    """Access patterns of copies."""

    __slots__ = ()
    store: Store

    @access(
        "Get imports version",
        GetItem(key=item_key(user_pk(param("userId")), PROFILE), project=("PK", "importsVersion")),
        table=COMMIT_COLLECT,
        by="both",
        trigger="Every write of a workout",
        frequency="Per event",
    )
    async def imports_version(self, user_id: str) -> int | None:
        """Return the version of the user's imports; None if the user has no profile (any more)."""
        item = await self.store.get(
            COMMIT_COLLECT,
            item_key(user_pk(user_id), PROFILE),
            project=("PK", "importsVersion"),
            consistent=True,
        )
        return None if item is None else int(item.get("importsVersion", 0))

    @access(
        "List files around a start",
        Query(
            where=_OF_USER & F("SK").begins_with(WORKOUT_PREFIX + FILE_PREFIX),
            filter=_STARTS_BETWEEN,
        ),
        table=COMMIT_COLLECT,
        by="both",
        trigger="Every write of a workout of a user who imports files",
        frequency="Per event",
        bound=MAX_INSPECTED_FILES,
    )
    async def files_between(self, user_id: str, start: str, end: str) -> list[Workout]:
        return await self._between(user_id, FILE_PREFIX, start, end)

    @access(
        "List workouts around a start",
        Query(where=_OF_USER & F("SK").begins_with(WORKOUT_PREFIX), filter=_STARTS_BETWEEN),
        table=COMMIT_COLLECT,
        by="both",
        trigger="POST /workouts/import, and every write of a workout with copies",
        frequency="Per import",
        bound=MAX_INSPECTED,
    )
    async def workouts_between(self, user_id: str, start: str, end: str) -> list[Workout]:
        return await self._between(user_id, "", start, end)

    async def _between(self, user_id: str, prefix: str, start: str, end: str) -> list[Workout]:
        found = self.store.items(
            COMMIT_COLLECT,
            (F("PK") == user_pk(user_id)) & F("SK").begins_with(WORKOUT_PREFIX + prefix),
            filter=F("startDateUtc").between(start, end),
            consistent=True,
        )
        try:
            return [read_workout(item) async for item in found]
        except BoundExceeded as error:
            raise Conflict(
                "The account has too many workouts to search for copies", code="too_many_workouts"
            ) from error

    @access(
        "Count files",
        Query(where=_OF_USER & F("SK").begins_with(WORKOUT_PREFIX + FILE_PREFIX), project=("SK",)),
        table=COMMIT_COLLECT,
        by="user",
        trigger="POST /workouts/import",
        frequency="Per import",
        bound=MAX_FILES,
    )
    async def count_files(self, user_id: str) -> int:
        """Count the files of a user, also deleted ones, up to the limit."""
        is_file = F("SK").begins_with(WORKOUT_PREFIX + FILE_PREFIX)
        found = self.store.items(
            COMMIT_COLLECT,
            (F("PK") == user_pk(user_id)) & is_file,
            project=("SK",),
            overflow="stop",
        )
        return len([item async for item in found])

    @access(
        "Write workout with its copies",
        TransactWriteItems(
            PutItem(
                key=item_key(user_pk(param("userId")), workout_sk(param("workoutId"))),
                condition=(has_version(None), has_version(param("read")), has_version(0)),
                requests=_MAX_CHANGES,
            ),
            ConditionCheck(key=_PROFILE_KEY, condition=_IS_CURRENT).optional(),
            UpdateItem(key=_PROFILE_KEY, condition=_IS_CURRENT).optional(),
            ConditionCheck(
                key=item_key(user_pk(param("userId")), CONNECTION), condition=IS_LINK
            ).optional(),
        ),
        table=COMMIT_COLLECT,
        by="both",
        trigger="Every event of an activity, POST /workouts/import",
        frequency="Per event",
    )
    async def write_copies(self, write: CopiesWrite) -> CopiesOutcome:
        """Write the next versions of a workout and its copies atomically."""
        owner = user_pk(write.changes[0][0].user_id)
        writes: list[Write] = [
            *(workout_put(workout, expected) for workout, expected in write.changes),
            _profile_write(item_key(owner, PROFILE), write),
        ]
        if write.connection is not None:
            link = item_key(owner, CONNECTION)
            writes.append(Check(COMMIT_COLLECT, link, is_link(write.connection)))
        try:
            await self.store.transact(writes)
        except TransactionCancelled as cancelled:
            # The reasons line up with the writes: the workout first, the connection last.
            decisive = [cancelled.reasons[0], *cancelled.reasons[len(write.changes) + 1 :]]
            is_outdated = any(reason.condition_failed for reason in decisive)
            return CopiesOutcome.OUTDATED if is_outdated else CopiesOutcome.LOST_RACE
        return CopiesOutcome.WRITTEN


def _profile_write(key: Item, write: CopiesWrite) -> Check | Update:
    is_unchanged = _has_imports_version(write.imports_version)
    if not write.is_decision:
        return Check(COMMIT_COLLECT, key, is_unchanged)
    increment = F("importsVersion").set(write.imports_version + 1)
    return Update(COMMIT_COLLECT, key, (increment,), is_unchanged)
