"""The table `cricket-fixture-cache`: fixtures as SportMonks told them, and what was added to show them to people.

Two write here at once: the syncs replace entries, and the push job adds enrichment. Nothing that
was added may be lost:

- `update_enrichment` is taken only around the match (`may_be_enriched`): from two hours before its start to seven days after.
- `put_batch` reads first and carries over what it finds. Outside of that time, an hour's margin included, nobody can add
  anything between its read and its write, so it writes in batches, which know no conditions. Within that time it updates entry by
  entry, and an update leaves enrichment alone.
- `put`, which is for a match that is on, goes through only if the entry carries the enrichment that stands there; if not, it
  takes that over and tries again.

What SportMonks told is kept compressed: a long match with all its balls would not fit an item
otherwise.
"""

import zlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

from tally.cricket.model.records import (
    ENRICHMENT_LEAD_MS,
    ENRICHMENT_MARGIN_MS,
    ENRICHMENT_TAIL_MS,
    CachedFixture,
    format_start_time,
    has_expired,
    is_enrichment_time,
)
from tally.cricket.repository.items import plain
from tally.errors import Conflict
from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    GetItem,
    PutItem,
    Query,
    Scan,
    UpdateItem,
    access,
)
from tally.store.batching import run_bounded
from tally.store.errors import ConditionFailed
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.store import Store
from tally.store.values import Item

BY_LEAGUE: Final = "leagueId-startingAt-index"

CRICKET_FIXTURE_CACHE = Table(
    "cricket-fixture-cache",
    partition=S("matchId"),
    indexes=(GlobalIndex(BY_LEAGUE, partition=S("leagueId"), sort=S("startingAt")),),
    ttl="ttl",
    attributes=(
        Attribute("matchId", "S", required=True, about="Fixture match ID"),
        Attribute("leagueId", "S", required=True),
        Attribute("startingAt", "S", required=True, about="2026-11-15T14:00:00Z"),
        Attribute(
            "content", "B", required=True, about="what SportMonks told: JSON, compressed by zlib"
        ),
        Attribute("cachedAt", "N", required=True, about="epoch milliseconds"),
        Attribute(
            "ttl",
            "N",
            required=True,
            about="epoch seconds, sooner for a live match; also checked at every read",
        ),
        Attribute("enrichment", "M", about="names and pictures of teams and league, and the like"),
        Attribute("enrichedAt", "N", about="epoch milliseconds"),
    ),
)
MAX_OF_A_LEAGUE: Final = 5_000
MAX_FIXTURES: Final = 20_000
UPDATES_AT_ONCE: Final = 32
MAX_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class FixtureCacheRepository:
    """Cached fixtures by match and by league.

    What has expired at `now`, in seconds, is not there.
    """

    store: Store
    tables: ClassVar = (CRICKET_FIXTURE_CACHE,)

    @access(
        "Get cached fixture",
        GetItem,
        table=CRICKET_FIXTURE_CACHE,
        key="PK=matchId",
        by="both",
        trigger="GET /matches/:id, LiveScoreJob",
        frequency="Per request / per tick",
    )
    async def get(self, match_id: str, now: int) -> CachedFixture | None:
        item = await self.store.get(CRICKET_FIXTURE_CACHE, {"matchId": match_id}, consistent=True)
        return None if item is None or has_expired(item["ttl"], now) else _fixture(item)

    @access(
        "Batch get cached fixtures",
        BatchGetItem,
        table=CRICKET_FIXTURE_CACHE,
        key="PK=matchId (up to 100, with retry)",
        by="both",
        trigger="GET /matches, FixtureSyncJob",
        frequency="Per request / per sync",
        bound=MAX_FIXTURES,
    )
    async def get_many(self, match_ids: Iterable[str], now: int) -> dict[str, CachedFixture]:
        """Those that there are, by match."""
        keys = [{"matchId": match_id} for match_id in match_ids]
        found = (
            await self.store.get_many(CRICKET_FIXTURE_CACHE, keys, consistent=True) if keys else []
        )
        return {
            item["matchId"]: _fixture(item) for item in found if not has_expired(item["ttl"], now)
        }

    @access(
        "Get fixtures by league",
        Query,
        table=CRICKET_FIXTURE_CACHE,
        index=BY_LEAGUE,
        key="leagueId-startingAt-index, leagueId = :lid with filter ttl > :now",
        by="both",
        trigger="GET /matches?league=, LiveScoreJob",
        frequency="Per request / per tick",
        bound=MAX_OF_A_LEAGUE,
    )
    async def by_league(self, league_id: str, now: int) -> list[CachedFixture]:
        """All of a league, the earliest start first."""
        where, alive = F("leagueId") == league_id, F("ttl") > now
        items = self.store.items(CRICKET_FIXTURE_CACHE, where, index=BY_LEAGUE, filter=alive)
        return [_fixture(item) async for item in items]

    @access(
        "Get all cached fixtures",
        Scan,
        table=CRICKET_FIXTURE_CACHE,
        key="Full table scan (30-50 items)",
        by="system",
        trigger="FixtureSyncJob",
        frequency="Per sync cycle",
        bound=MAX_FIXTURES,
    )
    async def all(self, now: int) -> AsyncGenerator[CachedFixture, None]:
        async for item in self.store.scan_items(CRICKET_FIXTURE_CACHE, consistent=True):
            if not has_expired(item["ttl"], now):
                yield _fixture(item)

    @access(
        "Put single fixture",
        PutItem + GetItem.with_note("where something was added meanwhile"),
        table=CRICKET_FIXTURE_CACHE,
        key="PK=matchId, absent or with the enrichment that the entry carries",
        by="system",
        trigger="LiveScoreJob",
        frequency="Per live match per tick",
    )
    async def put(self, entry: CachedFixture) -> CachedFixture:
        """The entry as it stands now, with enrichment that was there and newer than its own."""
        for _ in range(MAX_TRIES):
            try:
                await self.store.put(
                    CRICKET_FIXTURE_CACHE,
                    _item(entry),
                    condition=_not_enriched_since(entry.enriched_at),
                )
            except ConditionFailed:
                found = await self.store.get(
                    CRICKET_FIXTURE_CACHE, {"matchId": entry.match_id}, consistent=True
                )
                entry = _carrying(entry, found or {})
            else:
                return entry
        raise Conflict(
            f"Match {entry.match_id} is being enriched over and over", code="fixture_busy"
        )

    @access(
        "Batch put fixtures",
        BatchGetItem + BatchWriteItem + UpdateItem.with_note("around the match"),
        table=CRICKET_FIXTURE_CACHE,
        key="PK=matchId (batches of 25, with retry)",
        by="system",
        trigger="FixtureSyncJob",
        frequency="Per sync cycle",
        bound=MAX_FIXTURES,
    )
    async def put_batch(self, entries: Iterable[CachedFixture], now: int) -> None:
        """Put all of these at `now` milliseconds, each with the enrichment that is there, unless it brings newer."""
        wanted = {entry.match_id: entry for entry in entries}
        if not wanted:
            return
        keys = [{"matchId": match_id} for match_id in wanted]
        found = {
            item["matchId"]: item
            for item in await self.store.get_many(CRICKET_FIXTURE_CACHE, keys, consistent=True)
        }
        quiet = {
            match_id for match_id in wanted if _is_quiet(wanted[match_id], found.get(match_id), now)
        }
        puts = [
            _item(_carrying(wanted[match_id], found.get(match_id, {})))
            for match_id in wanted
            if match_id in quiet
        ]
        await self.store.write_many(CRICKET_FIXTURE_CACHE, puts=puts)
        busy = [entry for match_id, entry in wanted.items() if match_id not in quiet]
        await run_bounded((partial(self._update, entry) for entry in busy), UPDATES_AT_ONCE)

    @access(
        "Update enrichment only",
        UpdateItem.conditional,
        table=CRICKET_FIXTURE_CACHE,
        key="PK=matchId with ConditionExpression: attribute_exists(matchId), around the match",
        by="system",
        trigger="ActivityPushJob",
        frequency="Per live match per tick",
    )
    async def update_enrichment(
        self, match_id: str, enrichment: Mapping[str, Any], now: int
    ) -> bool:
        """Whether there is such an entry, whose match is near at `now` milliseconds, and nothing newer was added to it."""
        around = F("startingAt").between(
            format_start_time(now - ENRICHMENT_TAIL_MS), format_start_time(now + ENRICHMENT_LEAD_MS)
        )
        is_there = exists("matchId") & (F("ttl") > now // 1000) & around & _not_enriched_since(now)
        steps = (F("enrichment").set(plain(enrichment)), F("enrichedAt").set(now))
        try:
            await self.store.update(
                CRICKET_FIXTURE_CACHE, {"matchId": match_id}, *steps, condition=is_there
            )
        except ConditionFailed:
            return False
        return True

    async def _update(self, entry: CachedFixture) -> None:
        """Replace what SportMonks told, and the enrichment only if the entry brings one that is not older."""
        key, item = {"matchId": entry.match_id}, _item(entry)
        told = [
            F(name).set(value)
            for name, value in item.items()
            if name not in {"matchId", "enrichment", "enrichedAt"}
        ]
        if entry.enrichment is not None:
            added = (
                F("enrichment").set(item["enrichment"]),
                F("enrichedAt").set(item["enrichedAt"]),
            )
            try:
                condition = _not_enriched_since(entry.enriched_at)
                await self.store.update(
                    CRICKET_FIXTURE_CACHE, key, *told, *added, condition=condition
                )
            except ConditionFailed:  # something newer was added meanwhile: leave that alone
                pass
            else:
                return
        await self.store.update(CRICKET_FIXTURE_CACHE, key, *told)


def _not_enriched_since(moment: int | None) -> Condition:
    return (
        not_exists("enrichedAt")
        if moment is None
        else not_exists("enrichedAt") | (F("enrichedAt") <= moment)
    )


def _is_quiet(entry: CachedFixture, found: Mapping[str, Any] | None, now: int) -> bool:
    """Whether nobody may add anything to the entry now, neither as it is stored nor as it will be."""
    starts = {entry.starting_at} | ({found["startingAt"]} if found is not None else set())
    return not any(is_enrichment_time(start, now, ENRICHMENT_MARGIN_MS) for start in starts)


def _carrying(entry: CachedFixture, found: Mapping[str, Any]) -> CachedFixture:
    """The entry with what has been added to the stored one, unless its own is not older."""
    if "enrichedAt" not in found or (
        entry.enriched_at is not None and entry.enriched_at >= found["enrichedAt"]
    ):
        return entry
    return replace(entry, enrichment=found["enrichment"], enriched_at=found["enrichedAt"])


def _item(entry: CachedFixture) -> Item:
    item: Item = {
        "matchId": entry.match_id,
        "leagueId": entry.league_id,
        "startingAt": entry.starting_at,
        "content": zlib.compress(entry.content.encode(), 1),
        "cachedAt": entry.cached_at,
        "ttl": entry.expires_at,
    }
    if entry.enrichment is not None:
        item |= {
            "enrichment": plain(entry.enrichment),
            "enrichedAt": entry.enriched_at or entry.cached_at,
        }
    return item


def _fixture(item: Mapping[str, Any]) -> CachedFixture:
    return CachedFixture(
        match_id=item["matchId"],
        league_id=item["leagueId"],
        starting_at=item["startingAt"],
        content=zlib.decompress(item["content"]).decode(),
        cached_at=item["cachedAt"],
        expires_at=item["ttl"],
        enrichment=item.get("enrichment"),
        enriched_at=item.get("enrichedAt"),
    )
