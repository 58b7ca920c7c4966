"""The table `cricket-fixtures`: every match that the system knows about.

A match is live while it has `liveUpdatedAt`. The key of the index of live matches, `live`, comes
and goes with it in the same write, so the index holds exactly the live matches. Only a sync makes
fixtures: an update or an archival never does.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Final

from tally.cricket.model.records import Fixture
from tally.cricket.repository.items import ItemMapper
from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    DeleteItem,
    GetItem,
    Query,
    Scan,
    UpdateItem,
    access,
)
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

BY_LEAGUE: Final = "leagueCode-startTime-index"
LIVE: Final = "live-index"
IS_LIVE: Final = "1"

CRICKET_FIXTURES = Table(
    "cricket-fixtures",
    partition=S("matchId"),
    indexes=(
        GlobalIndex(BY_LEAGUE, partition=S("leagueCode"), sort=S("startTime")),
        GlobalIndex(LIVE, partition=S("live"), sort=S("startTime")),
    ),
    attributes=(
        Attribute("matchId", "S", required=True, about="SportMonks fixture ID"),
        Attribute("leagueId", "S", required=True),
        Attribute("leagueCode", "S"),
        Attribute("seasonId", "S"),
        Attribute("homeTeamId", "S", required=True),
        Attribute("awayTeamId", "S", required=True),
        Attribute("matchType", "S", required=True, about="T20, ODI, Test…"),
        Attribute("startTime", "S", required=True, about="2026-11-15T14:00:00Z"),
        Attribute(
            "status",
            "S",
            required=True,
            about="not_started, in_play, innings_break, break, delayed…",
        ),
        Attribute("updatedAt", "N", required=True, about="epoch milliseconds"),
        Attribute("round", "S"),
        Attribute("venueId", "S"),
        Attribute("note", "S", about="the result in words"),
        Attribute("tossTeamId", "S", about="who won the toss"),
        Attribute("elected", "S", about="batting or bowling"),
        Attribute("winnerTeamId", "S"),
        Attribute("live", "S", about='"1" while liveUpdatedAt is there'),
        Attribute(
            "liveUpdatedAt", "N", about="epoch milliseconds of the last poll that showed it live"
        ),
        Attribute("archivedAt", "N", about="epoch milliseconds; it has left the live feed"),
        Attribute(
            "tossToldAt", "N", about="epoch milliseconds; all followers have been told of the toss"
        ),
        Attribute("replayOf", "S", about="the match that this one plays again"),
        Attribute("replayExpiresAt", "N", about="epoch milliseconds"),
        Attribute("replaySpeed", "N", about="how many times faster than it was played"),
    ),
)
_SHAPE: Final = ItemMapper(Fixture, toss_notified_at="tossToldAt")

MAX_STARTING: Final = 2_000
MAX_LIVE: Final = 500
MAX_READ: Final = 2_000
MAX_WRITTEN: Final = 20_000
MAX_SCANNED: Final = 20_000
SCAN_PAGE: Final = 1_000


def _key(match_id: str) -> Item:
    return {"matchId": match_id}


@dataclass(frozen=True, slots=True)
class FixtureRepository:
    """Fixtures by id, by league and start, and those that are live."""

    store: Store
    tables: ClassVar = (CRICKET_FIXTURES,)

    @access(
        "Get fixture by ID",
        GetItem,
        table=CRICKET_FIXTURES,
        key="PK=matchId",
        by="both",
        trigger="GET /matches/:id, LiveScoreJob",
        frequency="Per request / every 2.5s per live match",
    )
    async def get(self, match_id: str) -> Fixture | None:
        item = await self.store.get(CRICKET_FIXTURES, _key(match_id), consistent=True)
        return None if item is None else _SHAPE.record(item)

    @access(
        "Batch get fixtures",
        BatchGetItem,
        table=CRICKET_FIXTURES,
        key="PK=matchId (up to 100)",
        by="both",
        trigger="GET /matches, FixtureCacheService",
        frequency="Per request / per sync cycle",
        bound=MAX_WRITTEN,
    )
    async def get_many(self, match_ids: Iterable[str]) -> dict[str, Fixture]:
        """Those that there are, by id."""
        keys = [_key(match_id) for match_id in match_ids]
        found = await self.store.get_many(CRICKET_FIXTURES, keys, consistent=True) if keys else []
        return {item["matchId"]: _SHAPE.record(item) for item in found}

    @access(
        "Get matches by date range",
        Query,
        table=CRICKET_FIXTURES,
        index=BY_LEAGUE,
        key="leagueCode-startTime-index, leagueCode = :code AND startTime BETWEEN :from AND :to",
        by="user",
        trigger="GET /matches?league=&from=&to=",
        frequency="Per user request",
    )
    async def by_date(
        self, league_code: str, since: str, until: str, limit: int, start: Key | None = None
    ) -> tuple[list[Fixture], Key | None]:
        """A page of a league's matches that start from `since` to `until`, the earliest first, and where the next page starts."""
        where = (F("leagueCode") == league_code) & F("startTime").between(since, until)
        page = await self.store.query(
            CRICKET_FIXTURES, where, index=BY_LEAGUE, limit=limit, start=start
        )
        return [_SHAPE.record(item) for item in page.items], page.next

    @access(
        "Get starting-soon matches",
        Query,
        table=CRICKET_FIXTURES,
        index=BY_LEAGUE,
        key=(
            "leagueCode-startTime-index, leagueCode = :code AND startTime BETWEEN :now AND :until, for each active league, "
            "with filter attribute_not_exists(liveUpdatedAt) AND attribute_not_exists(archivedAt)"
        ),
        by="system",
        trigger="PrematchNotificationJob",
        frequency="Every 60s",
        bound=MAX_STARTING,
    )
    async def starting_soon(
        self, league_codes: Iterable[str], now: str, until: str
    ) -> list[Fixture]:
        """Matches of these leagues that start from `now` to `until` and are neither live nor over, the earliest first."""

        async def of_league(code: str) -> list[Fixture]:
            where = (F("leagueCode") == code) & F("startTime").between(now, until)
            waiting = not_exists("liveUpdatedAt") & not_exists("archivedAt")
            items = self.store.items(
                CRICKET_FIXTURES, where, index=BY_LEAGUE, filter=waiting, bound=MAX_STARTING
            )
            return [_SHAPE.record(item) async for item in items]

        found = await asyncio.gather(*(of_league(code) for code in dict.fromkeys(league_codes)))
        return sorted(
            (each for league in found for each in league), key=attrgetter("start_time", "match_id")
        )

    @access(
        "Scan live fixtures",
        Scan,
        table=CRICKET_FIXTURES,
        index=LIVE,
        key="live-index full scan",
        by="system",
        trigger="LiveScoreJob reconciliation",
        frequency="Every 2.5s",
        bound=MAX_LIVE,
    )
    async def live(self) -> list[Fixture]:
        """All that are live, the earliest start first."""
        items = self.store.scan_items(CRICKET_FIXTURES, index=LIVE)
        return sorted(
            [_SHAPE.record(item) async for item in items], key=attrgetter("start_time", "match_id")
        )

    @access(
        "Batch write fixtures",
        BatchWriteItem,
        table=CRICKET_FIXTURES,
        key="PK=matchId (batches of 25)",
        by="system",
        trigger="FixtureSyncJob",
        frequency="Per sync cycle",
        bound=MAX_WRITTEN,
    )
    async def write_batch(self, fixtures: Iterable[Fixture]) -> None:
        """Put whole fixtures.

        For those that are not there yet: of one that is, `update` keeps what others have written.
        """
        await self.store.write_many(CRICKET_FIXTURES, puts=[_item(fixture) for fixture in fixtures])

    @access(
        "Update fixture fields",
        UpdateItem.conditional,
        table=CRICKET_FIXTURES,
        key="PK=matchId with ConditionExpression: attribute_exists(matchId)",
        by="system",
        trigger="LiveScoreJob, FixtureSyncJob",
        frequency="Per live match per tick",
    )
    async def update(self, match_id: str, **changes: Any) -> Fixture | None:
        """The fixture with these fields of `Fixture` changed, None taking one away; or None where there is no such fixture."""
        steps = _SHAPE.steps(changes)
        if "live_updated_at" in changes:
            steps.append(
                F("live").remove() if changes["live_updated_at"] is None else F("live").set(IS_LIVE)
            )
        try:
            item = await self.store.update(
                CRICKET_FIXTURES,
                _key(match_id),
                *steps,
                condition=exists("matchId"),
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return _SHAPE.record(item or {})

    @access(
        "Archive fixture",
        UpdateItem.conditional,
        table=CRICKET_FIXTURES,
        key="PK=matchId with attribute_exists(matchId), SETs archivedAt, REMOVEs liveUpdatedAt",
        by="system",
        trigger="LiveScoreJob reconciliation",
        frequency="When match leaves livescores",
    )
    async def archive(self, match_id: str, now: int) -> bool:
        """Take a fixture out of the live ones; whether there is such a fixture."""
        steps = (F("archivedAt").set(now), F("liveUpdatedAt").remove(), F("live").remove())
        try:
            await self.store.update(
                CRICKET_FIXTURES, _key(match_id), *steps, condition=exists("matchId")
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Delete replay fixture",
        DeleteItem,
        table=CRICKET_FIXTURES,
        key="PK=matchId",
        by="system",
        trigger="LiveScoreJob reconciliation",
        frequency="When replay expires",
    )
    async def delete_replay(self, match_id: str) -> bool:
        """Whether it was there and a replay; a real match is never deleted."""
        try:
            await self.store.delete(CRICKET_FIXTURES, _key(match_id), condition=exists("replayOf"))
        except ConditionFailed:
            return False
        return True

    @access(
        "Get fixtures by league (admin)",
        Scan.filtered,
        table=CRICKET_FIXTURES,
        key="FilterExpression: leagueId = :lid",
        by="user",
        trigger="Admin endpoints",
        frequency="Rare, admin-only",
        bound=MAX_SCANNED,
    )
    async def by_league(
        self, league_id: str, limit: int, start: Key | None = None
    ) -> tuple[list[Fixture], Key | None]:
        """Up to `limit` fixtures of a league, in no order, and where to go on; a page may be short when the table is large."""
        found: list[Fixture] = []
        for _ in range(MAX_SCANNED // SCAN_PAGE):
            page = await self.store.scan(
                CRICKET_FIXTURES, filter=F("leagueId") == league_id, limit=SCAN_PAGE, start=start
            )
            found += [_SHAPE.record(item) for item in page.items]
            if len(found) > limit:
                return found[:limit], _key(found[limit - 1].match_id)
            start = page.next
            if start is None or len(found) == limit:
                break
        return found, start


def _item(fixture: Fixture) -> Item:
    item = _SHAPE.item(fixture)
    if fixture.is_live:
        item["live"] = IS_LIVE
    return item
