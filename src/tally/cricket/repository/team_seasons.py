"""The table `cricket-team-seasons`: the teams of each season, with their statistics."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.cricket.model.records import TeamSeason
from tally.cricket.repository.items import ItemMapper
from tally.store.access import BatchWriteItem, Query, access, param
from tally.store.expressions import F
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

CRICKET_TEAM_SEASONS = Table(
    "cricket-team-seasons",
    partition=S("seasonId"),
    sort=S("teamId"),
    attributes=(
        Attribute("seasonId", "S", required=True, about="SportMonks season ID"),
        Attribute("teamId", "S", required=True, about="SportMonks team ID"),
        Attribute("leagueId", "S", required=True),
        Attribute("name", "S", required=True),
        Attribute("code", "S"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("stats", "M", required=True, about="played, won, lost, points…"),
    ),
)
_MAPPER: Final = ItemMapper(TeamSeason)
MAX_PER_SEASON: Final = 500
MAX_WRITTEN: Final = 5_000


@dataclass(frozen=True, slots=True)
class TeamSeasonRepository:
    """Teams by season."""

    store: Store
    tables: ClassVar = (CRICKET_TEAM_SEASONS,)

    @access(
        "Get teams for a season",
        Query(where=F("seasonId") == param("seasonId")),
        table=CRICKET_TEAM_SEASONS,
        by="both",
        trigger="GET /seasons/:id/teams, FixtureEnrichmentProvider",
        frequency="Per request / per enrichment",
        bound=MAX_PER_SEASON,
    )
    async def list_by_season(self, season_id: str) -> list[TeamSeason]:
        items = self.store.items(CRICKET_TEAM_SEASONS, F("seasonId") == season_id, consistent=True)
        return [_MAPPER.to_record(item) async for item in items]

    @access(
        "Write season-team records",
        BatchWriteItem(key={"seasonId": param("seasonId"), "teamId": param("teamId")}),
        table=CRICKET_TEAM_SEASONS,
        by="system",
        trigger="TeamSyncJob",
        frequency="Per sync cycle",
        bound=MAX_WRITTEN,
    )
    async def write_batch(self, records: Iterable[TeamSeason]) -> None:
        await self.store.write_many(
            CRICKET_TEAM_SEASONS, puts=[_MAPPER.to_item(record) for record in records]
        )
