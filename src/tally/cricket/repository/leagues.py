"""The table `cricket-leagues`: competitions, and whether they are active."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Final

from tally.cricket.model.records import League
from tally.cricket.repository.items import ItemMapper
from tally.store.access import DeleteItem, GetItem, PutItem, Scan, UpdateItem, access, param
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
        Attribute("seasonId", "S", about="the current season"),
        Attribute("countryId", "S"),
        Attribute("imageUrl", "S"),
        Attribute("type", "S"),
        Attribute(
            "active",
            "BOOL",
            required=True,
            about="its fixtures are synced and its followers notified",
        ),
        Attribute("version", "N", required=True, about="number of changes, for optimistic locking"),
        Attribute(
            "editedAt",
            "N",
            about="epoch milliseconds of the last change of name or image by an administrator",
        ),
    ),
)
_MAPPER: Final = ItemMapper(League)
# About thirty are in use.
MAX_LEAGUES: Final = 1_000


_KEY: Final = {"leagueId": param("leagueId")}
_IS_ACTIVE: Final = F("active") == True  # noqa: E712


@dataclass(frozen=True, slots=True)
class LeagueRepository:
    """Leagues by id, all leagues and active leagues."""

    store: Store
    tables: ClassVar = (CRICKET_LEAGUES,)

    @access(
        "Get league by ID",
        GetItem(key=_KEY),
        table=CRICKET_LEAGUES,
        by="both",
        trigger="GET /leagues/:id, FixtureEnrichmentProvider",
        frequency="Per request / per enrichment",
    )
    async def get(self, league_id: str) -> League | None:
        item = await self.store.get(CRICKET_LEAGUES, {"leagueId": league_id}, consistent=True)
        return None if item is None else _MAPPER.to_record(item)

    @access(
        "Get all leagues",
        Scan(),
        table=CRICKET_LEAGUES,
        by="user",
        trigger="GET /leagues",
        frequency="Per request, cached in-memory",
        bound=MAX_LEAGUES,
    )
    async def all(self) -> list[League]:
        """Return the leagues by name."""
        items = self.store.scan_items(CRICKET_LEAGUES, consistent=True)
        return sorted(
            [_MAPPER.to_record(item) async for item in items], key=attrgetter("name", "league_id")
        )

    @access(
        "Get active leagues",
        Scan(filter=_IS_ACTIVE),
        table=CRICKET_LEAGUES,
        by="system",
        trigger="PrematchNotificationJob, FixtureSyncJob",
        frequency="Per job cycle, cached",
        bound=MAX_LEAGUES,
    )
    async def active(self) -> list[League]:
        """Return the leagues by name."""
        items = self.store.scan_items(CRICKET_LEAGUES, filter=_IS_ACTIVE, consistent=True)
        return sorted(
            [_MAPPER.to_record(item) async for item in items], key=attrgetter("name", "league_id")
        )

    @access(
        "Create/replace league",
        PutItem(key=_KEY, condition=not_exists("leagueId") | (F("version") == param("previous"))),
        table=CRICKET_LEAGUES,
        by="system",
        trigger="LeagueSyncJob",
        frequency="Per sync cycle",
    )
    async def put(self, league: League) -> bool:
        """Create a league or replace its previous version; return False if it has changed."""
        is_previous_version = not_exists("leagueId") | (F("version") == league.version - 1)
        try:
            await self.store.put(
                CRICKET_LEAGUES, _MAPPER.to_item(league), condition=is_previous_version
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Update league fields",
        UpdateItem(key=_KEY, condition=exists("leagueId")),
        table=CRICKET_LEAGUES,
        by="user",
        trigger="PATCH /leagues/:id (admin)",
        frequency="Rare, admin-only",
    )
    async def update(self, league_id: str, **changes: Any) -> League | None:
        """Change fields and increment the version; return None if there is no such league."""
        actions = (*_MAPPER.update_actions(changes), F("version").add(1))
        try:
            item = await self.store.update(
                CRICKET_LEAGUES,
                {"leagueId": league_id},
                *actions,
                condition=exists("leagueId"),
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return _MAPPER.to_record(item or {})

    @access(
        "Delete league",
        DeleteItem(key=_KEY),
        table=CRICKET_LEAGUES,
        by="user",
        trigger="Admin endpoint",
        frequency="Rare",
    )
    async def delete(self, league_id: str) -> bool:
        """Delete a league; return False if there is none."""
        return (
            await self.store.delete(CRICKET_LEAGUES, {"leagueId": league_id}, returns="ALL_OLD")
            is not None
        )
