"""The table `cricket-leagues`: competitions, and whether they are followed up."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Final

from tally.cricket.model.records import League
from tally.cricket.repository.items import ItemMapper
from tally.store.access import DeleteItem, GetItem, PutItem, Scan, UpdateItem, access
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

CRICKET_LEAGUES = Table(
    "cricket-leagues",
    partition=S("leagueId"),
    attributes=(
        Attribute("leagueId", "S", required=True, about="SportMonks league ID"),
        Attribute("name", "S", required=True),
        Attribute("code", "S", about="the leagueCode of its fixtures"),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("seasonId", "S", about="the season that is on"),
        Attribute("countryId", "S"),
        Attribute("imageUrl", "S"),
        Attribute("type", "S"),
        Attribute(
            "active", "BOOL", required=True, about="its fixtures are synced and its followers told"
        ),
        Attribute("version", "N", required=True, about="counts the changes"),
        Attribute(
            "editedAt",
            "N",
            about="epoch milliseconds of the last change of name or picture by an administrator",
        ),
    ),
)
_SHAPE: Final = ItemMapper(League)
# Below thirty are in use; SportMonks has some more.
MAX_LEAGUES: Final = 1_000


@dataclass(frozen=True, slots=True)
class LeagueRepository:
    """Competitions by id, all of them, and the active ones."""

    store: Store
    tables: ClassVar = (CRICKET_LEAGUES,)

    @access(
        "Get league by ID",
        GetItem,
        table=CRICKET_LEAGUES,
        key="PK=leagueId",
        by="both",
        trigger="GET /leagues/:id, FixtureEnrichmentProvider",
        frequency="Per request / per enrichment",
    )
    async def get(self, league_id: str) -> League | None:
        item = await self.store.get(CRICKET_LEAGUES, {"leagueId": league_id}, consistent=True)
        return None if item is None else _SHAPE.record(item)

    @access(
        "Get all leagues",
        Scan,
        table=CRICKET_LEAGUES,
        key="Full table scan (< 30 items)",
        by="user",
        trigger="GET /leagues",
        frequency="Per request, cached in-memory",
        bound=MAX_LEAGUES,
    )
    async def all(self) -> list[League]:
        """By name."""
        items = self.store.scan_items(CRICKET_LEAGUES, consistent=True)
        return sorted(
            [_SHAPE.record(item) async for item in items], key=attrgetter("name", "league_id")
        )

    @access(
        "Get active leagues",
        Scan.filtered,
        table=CRICKET_LEAGUES,
        key="FilterExpression: active = true",
        by="system",
        trigger="PrematchNotificationJob, FixtureSyncJob",
        frequency="Per job cycle, cached",
        bound=MAX_LEAGUES,
    )
    async def active(self) -> list[League]:
        """By name."""
        items = self.store.scan_items(CRICKET_LEAGUES, filter=F("active") == True, consistent=True)  # noqa: E712
        return sorted(
            [_SHAPE.record(item) async for item in items], key=attrgetter("name", "league_id")
        )

    @access(
        "Create/replace league",
        PutItem,
        table=CRICKET_LEAGUES,
        key="PK=leagueId",
        by="system",
        trigger="LeagueSyncJob",
        frequency="Per sync cycle",
    )
    async def put(self, league: League) -> bool:
        """Put a league in place of the one whose version is one less, or of none; False where it has changed meanwhile."""
        as_read = not_exists("leagueId") | (F("version") == league.version - 1)
        try:
            await self.store.put(CRICKET_LEAGUES, _SHAPE.item(league), condition=as_read)
        except ConditionFailed:
            return False
        return True

    @access(
        "Update league fields",
        UpdateItem.conditional,
        table=CRICKET_LEAGUES,
        key="PK=leagueId with ConditionExpression: attribute_exists(leagueId)",
        by="user",
        trigger="PATCH /leagues/:id (admin)",
        frequency="Rare, admin-only",
    )
    async def update(self, league_id: str, **changes: Any) -> League | None:
        """The league with these fields of `League` changed and its version one higher, or None where there is no such league."""
        steps = (*_SHAPE.steps(changes), F("version").add(1))
        try:
            item = await self.store.update(
                CRICKET_LEAGUES,
                {"leagueId": league_id},
                *steps,
                condition=exists("leagueId"),
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return _SHAPE.record(item or {})

    @access(
        "Delete league",
        DeleteItem,
        table=CRICKET_LEAGUES,
        key="PK=leagueId",
        by="user",
        trigger="Admin endpoint",
        frequency="Rare",
    )
    async def delete(self, league_id: str) -> bool:
        """Whether it was there."""
        return (
            await self.store.delete(CRICKET_LEAGUES, {"leagueId": league_id}, returns="ALL_OLD")
            is not None
        )
