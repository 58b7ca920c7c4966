"""The table `cricket-fixtures`: all matches.

A match is live while `liveUpdatedAt` is set. The same write sets or removes `live`, the key of the
sparse index of live matches, so that the index contains exactly those. Only syncs create fixtures;
updates and archiving never do.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Final

from tally.cricket.model.records import Fixture
from tally.cricket.repository.items import ItemMapper
from tally.cricket.repository.leagues import MAX_LEAGUES
from tally.kit.latest_results import LatestResults
from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    DeleteItem,
    GetItem,
    Query,
    Scan,
    UpdateItem,
    access,
    param,
)
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, exists, not_exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item, Key

BY_LEAGUE: Final = "leagueCode-startTime-index"
LIVE: Final = "live-index"
PENDING: Final = "followersPending-index"
IS_PENDING: Final = "1"
IS_LIVE: Final = "1"

CRICKET_FIXTURES = Table(
    "cricket-fixtures",
    partition=S("matchId"),
    indexes=(
        GlobalIndex(BY_LEAGUE, partition=S("leagueCode"), sort=S("startTime")),
        GlobalIndex(LIVE, partition=S("live"), sort=S("startTime")),
        GlobalIndex(PENDING, partition=S("followersPending"), sort=S("startTime")),
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
        Attribute("note", "S", about="the result as text"),
        Attribute("tossTeamId", "S", about="the winner of the toss"),
        Attribute("elected", "S", about="batting or bowling"),
        Attribute("winnerTeamId", "S"),
        Attribute("live", "S", about='"1" while liveUpdatedAt is set'),
        Attribute(
            "liveUpdatedAt", "N", about="epoch milliseconds of the last poll that listed it as live"
        ),
        Attribute("archivedAt", "N", about="epoch milliseconds; it has left the live feed"),
        Attribute(
            "tossToldAt", "N", about="epoch milliseconds; all followers were notified of the toss"
        ),
        Attribute("replayOf", "S", about="the match that this one replays"),
        Attribute("replayExpiresAt", "N", about="epoch milliseconds"),
        Attribute("replaySpeed", "N", about="speed factor of the replay"),
        Attribute(
            "followersPending", "S", about='"1" until the followers of both teams follow the match'
        ),
        Attribute("followersCursor", "S", about="the team and follower that were added last"),
        Attribute("heldAt", "N", about="epoch milliseconds; an operator holds the match"),
        Attribute("correctedResult", "M", about="the result that an operator has stated"),
    ),
)
_MAPPER: Final = ItemMapper(Fixture, toss_notified_at="tossToldAt")
# Most requests are for the few live matches, whose fixtures rarely change.
_RECENT: Final = LatestResults[str, Item, Fixture](_MAPPER.to_record)

MAX_STARTING: Final = 2_000
MAX_LIVE: Final = 500
MAX_WRITTEN: Final = 20_000
MAX_SCANNED: Final = 20_000
SCAN_PAGE: Final = 1_000


def _key(match_id: str) -> Item:
    return {"matchId": match_id}


_KEY: Final = _key(param("matchId"))


@dataclass(frozen=True, slots=True)
class FixtureRepository:
    """Fixtures by id, by league and start time, and live ones."""

    store: Store
    tables: ClassVar = (CRICKET_FIXTURES,)

    @access(
        "Get fixture by ID",
        GetItem(key=_KEY),
        table=CRICKET_FIXTURES,
        by="both",
        trigger="GET /matches/:id, LiveScoreJob",
        frequency="Per request / every 2.5s per live match",
    )
    async def get(self, match_id: str) -> Fixture | None:
        item = await self.store.get(CRICKET_FIXTURES, _key(match_id), consistent=True)
        return None if item is None else _RECENT.get(match_id, item)

    @access(
        "Batch get fixtures",
        BatchGetItem(key=_KEY),
        table=CRICKET_FIXTURES,
        by="both",
        trigger="GET /matches, FixtureCacheService",
        frequency="Per request / per sync cycle",
        bound=MAX_WRITTEN,
    )
    async def get_many(self, match_ids: Iterable[str]) -> dict[str, Fixture]:
        """Return the existing fixtures by id."""
        keys = [_key(match_id) for match_id in match_ids]
        found = await self.store.get_many(CRICKET_FIXTURES, keys, consistent=True) if keys else []
        return {item["matchId"]: _MAPPER.to_record(item) for item in found}

    @access(
        "Get matches by date range",
        Query(
            where=(F("leagueCode") == param("code"))
            & F("startTime").between(param("from"), param("to")),
            index=BY_LEAGUE,
        ),
        table=CRICKET_FIXTURES,
        by="user",
        trigger="GET /matches?league=&from=&to=",
        frequency="Per user request",
    )
    async def by_date(
        self, league_code: str, since: str, until: str, limit: int, start: Key | None = None
    ) -> tuple[list[Fixture], Key | None]:
        """Return a page of a league's matches in a range of start times, and the next start key."""
        where = (F("leagueCode") == league_code) & F("startTime").between(since, until)
        page = await self.store.query(
            CRICKET_FIXTURES, where, index=BY_LEAGUE, limit=limit, start=start
        )
        return [_MAPPER.to_record(item) for item in page.items], page.next

    @access(
        "Get starting-soon matches",
        Query(
            where=(F("leagueCode") == param("code"))
            & F("startTime").between(param("now"), param("until")),
            index=BY_LEAGUE,
            filter=not_exists("liveUpdatedAt") & not_exists("archivedAt"),
            requests=MAX_LEAGUES,
        ),
        table=CRICKET_FIXTURES,
        by="system",
        trigger="PrematchNotificationJob",
        frequency="Every 60s",
        bound=MAX_STARTING,
    )
    async def starting_soon(
        self, league_codes: Iterable[str], now: str, until: str
    ) -> list[Fixture]:
        """Return matches of these leagues that start from `now` to `until`, by start time.

        Live and archived matches are excluded.
        """

        async def league_matches(code: str) -> list[Fixture]:
            where = (F("leagueCode") == code) & F("startTime").between(now, until)
            is_upcoming = not_exists("liveUpdatedAt") & not_exists("archivedAt")
            items = self.store.items(
                CRICKET_FIXTURES, where, index=BY_LEAGUE, filter=is_upcoming, bound=MAX_STARTING
            )
            return [_MAPPER.to_record(item) async for item in items]

        by_league = await asyncio.gather(
            *(league_matches(code) for code in dict.fromkeys(league_codes))
        )
        return sorted(
            (fixture for fixtures in by_league for fixture in fixtures),
            key=attrgetter("start_time", "match_id"),
        )

    @access(
        "Scan live fixtures",
        Scan(index=LIVE),
        table=CRICKET_FIXTURES,
        by="system",
        trigger="LiveScoreJob reconciliation",
        frequency="Every 2.5s",
        bound=MAX_LIVE,
    )
    async def live(self) -> list[Fixture]:
        """Return the live matches by start time."""
        items = self.store.scan_items(CRICKET_FIXTURES, index=LIVE)
        return sorted(
            [_MAPPER.to_record(item) async for item in items],
            key=attrgetter("start_time", "match_id"),
        )

    @access(
        "Get fixtures that followers of their teams lack",
        Query(where=F("followersPending") == IS_PENDING, index=PENDING),
        table=CRICKET_FIXTURES,
        by="system",
        trigger="TeamFollowJob",
        frequency="Every 30s",
    )
    async def pending(self, limit: int) -> list[Fixture]:
        """Return fixtures whose teams' followers have not been added yet, by start time."""
        page = await self.store.query(
            CRICKET_FIXTURES, F("followersPending") == IS_PENDING, index=PENDING, limit=limit
        )
        return [_MAPPER.to_record(item) for item in page.items]

    @access(
        "Record the added followers of a fixture",
        UpdateItem(
            key=_KEY,
            condition=(F("homeTeamId") == param("home")) & (F("awayTeamId") == param("away")),
        ),
        table=CRICKET_FIXTURES,
        by="system",
        trigger="TeamFollowJob",
        frequency="Per new fixture",
    )
    async def record_followers(self, fixture: Fixture, cursor: str | None) -> bool:
        """Record the position, or that all followers were added (None).

        Returns False if other teams play by now: their followers remain to be added.
        """
        changes: dict[str, Any] = {"followers_cursor": cursor}
        if cursor is None:
            changes["followers_pending"] = None
        is_same = (F("homeTeamId") == fixture.home_team_id) & (
            F("awayTeamId") == fixture.away_team_id
        )
        try:
            await self.store.update(
                CRICKET_FIXTURES,
                _key(fixture.match_id),
                *_MAPPER.update_actions(changes),
                condition=is_same,
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Batch write fixtures",
        BatchWriteItem(key=_KEY),
        table=CRICKET_FIXTURES,
        by="system",
        trigger="FixtureSyncJob",
        frequency="Per sync cycle",
        bound=MAX_WRITTEN,
    )
    async def write_batch(self, fixtures: Iterable[Fixture]) -> None:
        """Write new fixtures. For existing ones use `update`, which preserves other fields."""
        await self.store.write_many(CRICKET_FIXTURES, puts=[_item(fixture) for fixture in fixtures])

    @access(
        "Update fixture fields",
        UpdateItem(key=_KEY, condition=exists("matchId")),
        table=CRICKET_FIXTURES,
        by="system",
        trigger="LiveScoreJob, FixtureSyncJob",
        frequency="Per live match per tick",
    )
    async def update(self, match_id: str, **changes: Any) -> Fixture | None:
        """Change fields of a fixture; None removes one. Return None if there is no such fixture."""
        actions = _MAPPER.update_actions(changes)
        if "live_updated_at" in changes:
            actions.append(
                F("live").remove() if changes["live_updated_at"] is None else F("live").set(IS_LIVE)
            )
        try:
            item = await self.store.update(
                CRICKET_FIXTURES,
                _key(match_id),
                *actions,
                condition=exists("matchId"),
                returns="ALL_NEW",
            )
        except ConditionFailed:
            return None
        return _MAPPER.to_record(item or {})

    @access(
        "Archive fixture",
        UpdateItem(key=_KEY, condition=exists("matchId")),
        table=CRICKET_FIXTURES,
        by="system",
        trigger="LiveScoreJob reconciliation",
        frequency="When match leaves livescores",
    )
    async def archive(self, match_id: str, now: int) -> bool:
        """Archive a fixture, which ends its live state; return False if there is none."""
        actions = (F("archivedAt").set(now), F("liveUpdatedAt").remove(), F("live").remove())
        try:
            await self.store.update(
                CRICKET_FIXTURES, _key(match_id), *actions, condition=exists("matchId")
            )
        except ConditionFailed:
            return False
        return True

    @access(
        "Delete replay fixture",
        DeleteItem(key=_KEY, condition=exists("replayOf")),
        table=CRICKET_FIXTURES,
        by="system",
        trigger="LiveScoreJob reconciliation",
        frequency="When replay expires",
    )
    async def delete_replay(self, match_id: str) -> bool:
        """Delete a replay; return False if there is none. Other matches are never deleted."""
        try:
            await self.store.delete(CRICKET_FIXTURES, _key(match_id), condition=exists("replayOf"))
        except ConditionFailed:
            return False
        return True

    @access(
        "Get fixtures by league (admin)",
        Scan(filter=F("leagueId") == param("lid")),
        table=CRICKET_FIXTURES,
        by="user",
        trigger="Admin endpoints",
        frequency="Rare, admin-only",
        bound=MAX_SCANNED,
    )
    async def by_league(
        self, league_id: str, limit: int, start: Key | None = None
    ) -> tuple[list[Fixture], Key | None]:
        """Return up to `limit` fixtures of a league, unordered, and the next start key.

        A page of a large table may have fewer.
        """
        found: list[Fixture] = []
        for _ in range(MAX_SCANNED // SCAN_PAGE):
            page = await self.store.scan(
                CRICKET_FIXTURES, filter=F("leagueId") == league_id, limit=SCAN_PAGE, start=start
            )
            found += [_MAPPER.to_record(item) for item in page.items]
            if len(found) > limit:
                return found[:limit], _key(found[limit - 1].match_id)
            start = page.next
            if start is None or len(found) == limit:
                break
        return found, start


def _item(fixture: Fixture) -> Item:
    item = _MAPPER.to_item(fixture)
    if fixture.is_polled:
        item["live"] = IS_LIVE
    return item
