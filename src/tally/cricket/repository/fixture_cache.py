"""The table `cricket-fixture-cache`: the last feed of each match, and its enrichment.

Syncs replace entries while the push job adds enrichment. No enrichment may be lost:

- `update_enrichment` succeeds only in the enrichment window (`is_enrichment_time`): from two hours
  before the start of the match to seven days after it.
- `put_batch` reads entries first and carries over their enrichment. Outside the window, with a
  margin of one hour, no enrichment can be added between its read and its write, so it uses batch
  writes, which have no conditions. Inside the window it updates entry by entry and does not touch
  the enrichment.
- `put`, for a live match, is conditional on the stored enrichment being that of the entry.
  Otherwise it carries over the stored one and retries.

Feeds are compressed: with all its balls, a long match exceeds the size limit of an item.
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
from tally.cricket.repository.items import to_store_value
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
    param,
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
        Attribute("content", "B", required=True, about="the feed: JSON, compressed with zlib"),
        Attribute("cachedAt", "N", required=True, about="epoch milliseconds"),
        Attribute(
            "ttl",
            "N",
            required=True,
            about="epoch seconds, shorter for a live match; also checked on every read",
        ),
        Attribute("enrichment", "M", about="names and images of the teams and the league"),
        Attribute("enrichedAt", "N", about="epoch milliseconds"),
    ),
)
MAX_PER_LEAGUE: Final = 5_000
MAX_FIXTURES: Final = 20_000
MAX_CONCURRENT_UPDATES: Final = 32
MAX_ATTEMPTS: Final = 10


def _not_enriched_since(time: int | None) -> Condition:
    return (
        not_exists("enrichedAt")
        if time is None
        else not_exists("enrichedAt") | (F("enrichedAt") <= time)
    )


_KEY: Final = {"matchId": param("matchId")}
_NOT_ENRICHED: Final = (_not_enriched_since(None), _not_enriched_since(param("time")))


@dataclass(frozen=True, slots=True)
class FixtureCacheRepository:
    """Cached fixtures by match and by league, without those expired at `now` seconds."""

    store: Store
    tables: ClassVar = (CRICKET_FIXTURE_CACHE,)

    @access(
        "Get cached fixture",
        GetItem(key=_KEY),
        table=CRICKET_FIXTURE_CACHE,
        by="both",
        trigger="GET /matches/:id, LiveScoreJob",
        frequency="Per request / per tick",
    )
    async def get(self, match_id: str, now: int) -> CachedFixture | None:
        item = await self.store.get(CRICKET_FIXTURE_CACHE, {"matchId": match_id}, consistent=True)
        return None if item is None or has_expired(item["ttl"], now) else _fixture(item)

    @access(
        "Batch get cached fixtures",
        BatchGetItem(key=_KEY),
        table=CRICKET_FIXTURE_CACHE,
        by="both",
        trigger="GET /matches, FixtureSyncJob",
        frequency="Per request / per sync",
        bound=MAX_FIXTURES,
    )
    async def get_many(self, match_ids: Iterable[str], now: int) -> dict[str, CachedFixture]:
        """Return the existing entries by match id."""
        keys = [{"matchId": match_id} for match_id in match_ids]
        stored = (
            await self.store.get_many(CRICKET_FIXTURE_CACHE, keys, consistent=True) if keys else []
        )
        return {
            item["matchId"]: _fixture(item) for item in stored if not has_expired(item["ttl"], now)
        }

    @access(
        "Get fixtures by league",
        Query(
            where=(F("leagueId") == param("lid"))
            & F("startingAt").between(param("from"), param("to")),
            index=BY_LEAGUE,
            filter=F("ttl") > param("now"),
        ),
        table=CRICKET_FIXTURE_CACHE,
        by="both",
        trigger="GET /matches?league=, LiveScoreJob",
        frequency="Per request / per tick",
        bound=MAX_PER_LEAGUE,
    )
    async def by_league(
        self, league_id: str, since: str, until: str, now: int
    ) -> list[CachedFixture]:
        """Return the entries of a league in a range of start times, by start time."""
        where = (F("leagueId") == league_id) & F("startingAt").between(since, until)
        is_alive = F("ttl") > now
        items = self.store.items(CRICKET_FIXTURE_CACHE, where, index=BY_LEAGUE, filter=is_alive)
        return [_fixture(item) async for item in items]

    @access(
        "Get all cached fixtures",
        Scan(),
        table=CRICKET_FIXTURE_CACHE,
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
        PutItem(key=_KEY, condition=_NOT_ENRICHED, requests=MAX_ATTEMPTS)
        + GetItem(key=_KEY, requests=MAX_ATTEMPTS).with_note("if enrichment was added meanwhile"),
        table=CRICKET_FIXTURE_CACHE,
        by="system",
        trigger="LiveScoreJob",
        frequency="Per live match per tick",
    )
    async def put(self, entry: CachedFixture) -> CachedFixture:
        """Write the entry; return it with newer enrichment that was stored."""
        for _ in range(MAX_ATTEMPTS):
            try:
                await self.store.put(
                    CRICKET_FIXTURE_CACHE,
                    _item(entry),
                    condition=_not_enriched_since(entry.enriched_at),
                )
            except ConditionFailed:
                stored = await self.store.get(
                    CRICKET_FIXTURE_CACHE, {"matchId": entry.match_id}, consistent=True
                )
                entry = _with_enrichment(entry, stored or {})
            else:
                return entry
        raise Conflict(
            f"Enrichment of match {entry.match_id} changed {MAX_ATTEMPTS} times",
            code="fixture_busy",
        )

    @access(
        "Batch put fixtures",
        BatchGetItem(key=_KEY)
        + BatchWriteItem(key=_KEY)
        + UpdateItem(
            key=_KEY, condition=(*_NOT_ENRICHED, None), requests=2 * MAX_FIXTURES
        ).with_note("around the match"),
        table=CRICKET_FIXTURE_CACHE,
        by="system",
        trigger="FixtureSyncJob",
        frequency="Per sync cycle",
        bound=MAX_FIXTURES,
    )
    async def put_batch(self, entries: Iterable[CachedFixture], now: int) -> None:
        """Write entries at `now` milliseconds; preserve enrichment that is newer than theirs."""
        by_id = {entry.match_id: entry for entry in entries}
        if not by_id:
            return
        keys = [{"matchId": match_id} for match_id in by_id]
        stored = {
            item["matchId"]: item
            for item in await self.store.get_many(CRICKET_FIXTURE_CACHE, keys, consistent=True)
        }
        outside = {
            match_id
            for match_id in by_id
            if _is_outside_window(by_id[match_id], stored.get(match_id), now)
        }
        puts = [
            _item(_with_enrichment(by_id[match_id], stored.get(match_id, {})))
            for match_id in by_id
            if match_id in outside
        ]
        await self.store.write_many(CRICKET_FIXTURE_CACHE, puts=puts)
        inside = [entry for match_id, entry in by_id.items() if match_id not in outside]
        await run_bounded(
            (partial(self._update, entry) for entry in inside), MAX_CONCURRENT_UPDATES
        )

    @access(
        "Update enrichment only",
        UpdateItem(
            key=_KEY,
            condition=exists("matchId")
            & (F("ttl") > param("now"))
            & F("startingAt").between(param("earliest"), param("latest"))
            & _not_enriched_since(param("now")),
        ),
        table=CRICKET_FIXTURE_CACHE,
        by="system",
        trigger="ActivityPushJob",
        frequency="Per live match per tick",
    )
    async def update_enrichment(
        self, match_id: str, enrichment: Mapping[str, Any], now: int
    ) -> bool:
        """Set the enrichment; return False outside the window or if newer enrichment is stored."""
        is_in_window = F("startingAt").between(
            format_start_time(now - ENRICHMENT_TAIL_MS), format_start_time(now + ENRICHMENT_LEAD_MS)
        )
        may_enrich = (
            exists("matchId") & (F("ttl") > now // 1000) & is_in_window & _not_enriched_since(now)
        )
        actions = (F("enrichment").set(to_store_value(enrichment)), F("enrichedAt").set(now))
        try:
            await self.store.update(
                CRICKET_FIXTURE_CACHE, {"matchId": match_id}, *actions, condition=may_enrich
            )
        except ConditionFailed:
            return False
        return True

    async def _update(self, entry: CachedFixture) -> None:
        """Replace the feed, and the enrichment only if that of the entry is not older."""
        key, item = {"matchId": entry.match_id}, _item(entry)
        feed_actions = [
            F(name).set(value)
            for name, value in item.items()
            if name not in {"matchId", "enrichment", "enrichedAt"}
        ]
        if entry.enrichment is not None:
            enrichment_actions = (
                F("enrichment").set(item["enrichment"]),
                F("enrichedAt").set(item["enrichedAt"]),
            )
            try:
                condition = _not_enriched_since(entry.enriched_at)
                await self.store.update(
                    CRICKET_FIXTURE_CACHE,
                    key,
                    *feed_actions,
                    *enrichment_actions,
                    condition=condition,
                )
            except ConditionFailed:  # newer enrichment was added meanwhile; preserve it
                pass
            else:
                return
        await self.store.update(CRICKET_FIXTURE_CACHE, key, *feed_actions)


def _is_outside_window(entry: CachedFixture, stored: Mapping[str, Any] | None, now: int) -> bool:
    """Whether no enrichment can be added now, neither to the stored nor to the new entry."""
    starts = {entry.starting_at} | ({stored["startingAt"]} if stored is not None else set())
    return not any(is_enrichment_time(start, now, ENRICHMENT_MARGIN_MS) for start in starts)


def _with_enrichment(entry: CachedFixture, stored: Mapping[str, Any]) -> CachedFixture:
    """Return the entry with the stored enrichment, unless its own is as new."""
    if "enrichedAt" not in stored or (
        entry.enriched_at is not None and entry.enriched_at >= stored["enrichedAt"]
    ):
        return entry
    return replace(entry, enrichment=stored["enrichment"], enriched_at=stored["enrichedAt"])


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
            "enrichment": to_store_value(entry.enrichment),
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
