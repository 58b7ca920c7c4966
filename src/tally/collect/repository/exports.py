"""All items of a user's partition, without keys and secrets, for the export of an account."""

from collections.abc import Mapping
from typing import Any, Final

from tally.collect.model.accounts import ExportedItem
from tally.collect.repository.parked_events import events_of_athlete
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    CONNECTION,
    MILESTONE_PREFIX,
    PROFILE,
    WORKOUT_PREFIX,
    user_pk,
)
from tally.kit.jsonable import to_jsonable
from tally.store.access import Query, access, param
from tally.store.expressions import F
from tally.store.store import Store
from tally.store.values import Key

EXPORT_PAGE_SIZE: Final = 250
AWARD_INFIX: Final = "#AWARD#"
# Keys repeat other attributes. The names of encrypted secrets start with `sealed`.
_OMITTED: Final = ("PK", "SK", "GSI", "sealed", "sessionEpoch")


class Exports:
    """The access patterns of exports."""

    __slots__ = ()
    store: Store

    @access(
        "Export a user's items",
        Query(where=F("PK") == user_pk(param("userId"))),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /account/export",
        frequency="Per 250 items of an export",
    )
    async def exported_items(
        self, user_id: str, start: Key | None
    ) -> tuple[list[ExportedItem], Key | None]:
        """Return a page of the items of a user; awards follow their milestone."""
        page = await self.store.query(
            COMMIT_COLLECT,
            F("PK") == user_pk(user_id),
            limit=EXPORT_PAGE_SIZE,
            start=start,
            consistent=True,
        )
        return [_exported(item) for item in page.items], page.next

    @access(
        "Export an athlete's events",
        Query(where=events_of_athlete(param("athleteId"))),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /account/export",
        frequency="Twice per export, and per 250 events",
    )
    async def exported_events(
        self, athlete_id: int, *, parked: bool, start: Key | None
    ) -> tuple[list[ExportedItem], Key | None]:
        """Return a page of the waiting or the parked events of an athlete."""
        waiting_events, parked_events = events_of_athlete(athlete_id)
        page = await self.store.query(
            COMMIT_COLLECT,
            parked_events if parked else waiting_events,
            limit=EXPORT_PAGE_SIZE,
            start=start,
            consistent=True,
        )
        return [ExportedItem("events", _content(item)) for item in page.items], page.next


def _exported(item: Mapping[str, Any]) -> ExportedItem:
    return ExportedItem(_section(item["SK"]), _content(item))


def _content(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: to_jsonable(value) for name, value in item.items() if not name.startswith(_OMITTED)
    }


def _section(sort: str) -> str:
    if sort.startswith(MILESTONE_PREFIX):
        return "awards" if AWARD_INFIX in sort else "milestones"
    if sort.startswith(WORKOUT_PREFIX):
        return "workouts"
    return {PROFILE: "profile", CONNECTION: "strava"}.get(sort, "other")
