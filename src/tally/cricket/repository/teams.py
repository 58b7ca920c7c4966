"""The table `cricket-teams`: teams from SportMonks, with the changes of administrators."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Final

from tally.cricket.model.records import Team
from tally.cricket.repository.items import ItemMapper
from tally.store.access import BatchWriteItem, GetItem, Scan, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

CRICKET_TEAMS = Table(
    "cricket-teams",
    partition=S("teamId"),
    attributes=(
        Attribute("teamId", "S", required=True, about="SportMonks team ID"),
        Attribute("name", "S", required=True),
        Attribute("code", "S", about="about three letters"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("imageUrl", "S"),
        Attribute("countryId", "S"),
        Attribute("isNational", "BOOL", required=True),
        Attribute("color", "S", about="#rrggbb, set by an administrator"),
        Attribute(
            "editedAt", "N", about="epoch milliseconds of the last change by an administrator"
        ),
    ),
)
_MAPPER: Final = ItemMapper(Team)
# SportMonks lists some hundreds.
MAX_TEAMS: Final = 5_000


_KEY: Final = {"teamId": param("teamId")}


@dataclass(frozen=True, slots=True)
class TeamRepository:
    """Teams by id, and all teams."""

    store: Store
    tables: ClassVar = (CRICKET_TEAMS,)

    @access(
        "Get team by ID",
        GetItem(key=_KEY),
        table=CRICKET_TEAMS,
        by="both",
        trigger="GET /teams/:id, FixtureEnrichmentProvider",
        frequency="Per request / per enrichment",
    )
    async def get(self, team_id: str) -> Team | None:
        item = await self.store.get(CRICKET_TEAMS, {"teamId": team_id}, consistent=True)
        return None if item is None else _MAPPER.to_record(item)

    @access(
        "Get all teams",
        Scan(),
        table=CRICKET_TEAMS,
        by="user",
        trigger="GET /teams",
        frequency="Per request, cached",
        bound=MAX_TEAMS,
    )
    async def all(self) -> list[Team]:
        """Return the teams by name."""
        items = self.store.scan_items(CRICKET_TEAMS, consistent=True)
        return sorted(
            [_MAPPER.to_record(item) async for item in items], key=attrgetter("name", "team_id")
        )

    @access(
        "Batch write teams",
        BatchWriteItem(key=_KEY),
        table=CRICKET_TEAMS,
        by="system",
        trigger="TeamSyncJob",
        frequency="Per sync cycle",
        bound=MAX_TEAMS,
    )
    async def write_batch(self, teams: Iterable[Team]) -> None:
        """Write new teams. For existing ones use `update`, which preserves other fields."""
        await self.store.write_many(CRICKET_TEAMS, puts=[_MAPPER.to_item(team) for team in teams])

    @access(
        "Update team fields",
        UpdateItem(key=_KEY, condition=exists("teamId")),
        table=CRICKET_TEAMS,
        by="user",
        trigger="PATCH /teams/:id (admin)",
        frequency="Rare, admin-only",
    )
    async def update(self, team_id: str, **changes: Any) -> Team | None:
        """Change fields of a team; return None if there is no such team."""
        actions = _MAPPER.update_actions(changes)
        try:
            item = await self.store.update(
                CRICKET_TEAMS,
                {"teamId": team_id},
                *actions,
                condition=exists("teamId"),
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return _MAPPER.to_record(item or {})
