"""Caches the last feed of each match in `cricket-fixture-cache`.

Requests read the cached feed, so that they do not depend on the score service. The cache stores the
scorecard as JSON; `match-processing-state` stores the balls. A feed of a running match that was not
renewed for 30 s is served and marked stale.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import CachedFixture, Fixture
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

MEMORY_TTL_SECONDS: Final = 1.0
STALE_AFTER_MS: Final = 30_000
LIVE_TTL_SECONDS: Final = 6 * 3_600
UPCOMING_TTL_SECONDS: Final = 7 * 86_400
FINISHED_TTL_SECONDS: Final = 30 * 86_400

_decoder: Final = msgspec.json.Decoder(MatchFeed)


@dataclass(frozen=True, slots=True)
class CachedFeed:
    """The last feed of a match and its enrichment.

    `is_stale` is set when the feed of a running match is older than 30 s.
    """

    feed: MatchFeed
    cached_at: int
    is_stale: bool
    enrichment: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FeedCache:
    """Reads and writes cached feeds; `memory` keeps decoded feeds for a second."""

    repository: FixtureCacheRepository
    clock: Clock
    memory: TTLCache[str, CachedFeed]

    async def put(self, feed: MatchFeed) -> None:
        await self.repository.put(feed_cache_entry(feed, self.clock.milliseconds()))
        self.memory.remove(feed.match_id)

    async def get(self, match_id: str) -> CachedFeed | None:
        cached = self.memory.get(match_id)
        if cached is None:
            entry = await self.repository.get(match_id, self.clock.seconds())
            cached = None if entry is None else self.decode(entry)
        return cached

    async def get_many(self, match_ids: Iterable[str]) -> Mapping[str, CachedFeed]:
        """Return the cached feeds of these matches by id, without those that have none."""
        unique_ids = list(dict.fromkeys(match_ids))
        feeds = {
            match_id: cached
            for match_id in unique_ids
            if (cached := self.memory.get(match_id)) is not None
        }
        missing = [match_id for match_id in unique_ids if match_id not in feeds]
        if missing:
            entries = await self.repository.get_many(missing, self.clock.seconds())
            for entry in entries.values():
                feeds[entry.match_id] = self.decode(entry)
        return feeds

    async def get_by_league(
        self, league_id: str, since: str, until: str
    ) -> Mapping[str, CachedFeed]:
        """Return the cached feeds of a league's matches in a range of start times, by match id."""
        entries = await self.repository.by_league(league_id, since, until, self.clock.seconds())
        return {entry.match_id: self.decode(entry) for entry in entries}

    async def get_all(self) -> Mapping[str, CachedFixture]:
        """Return all cache entries by match id; `decode` returns the feed of one."""
        entries = self.repository.all(self.clock.seconds())
        return {entry.match_id: entry async for entry in entries}

    def decode(self, entry: CachedFixture) -> CachedFeed:
        feed = _decoder.decode(entry.content)
        is_old = entry.cached_at + STALE_AFTER_MS < self.clock.milliseconds()
        cached = CachedFeed(
            feed, entry.cached_at, feed.status.is_running and is_old, entry.enrichment or {}
        )
        self.memory.put(entry.match_id, cached)
        return cached


def feed_cache_entry(feed: MatchFeed, now: int) -> CachedFixture:
    """Return the cache entry for a feed, without its balls; the TTL depends on the match status."""
    scorecard = msgspec.structs.replace(feed, balls=None)
    return CachedFixture(
        match_id=feed.match_id,
        league_id=feed.league_id,
        starting_at=feed.starts_at,
        content=msgspec.json.encode(scorecard).decode(),
        cached_at=now,
        expires_at=now // 1000 + _ttl_seconds(feed.status),
    )


def _ttl_seconds(status: MatchStatus) -> int:
    if status.is_over:
        return FINISHED_TTL_SECONDS
    return LIVE_TTL_SECONDS if status.is_running else UPCOMING_TTL_SECONDS


def has_stale_scores(fixture: Fixture, cached: CachedFeed | None) -> bool:
    """Return whether the match is live and its scores are older than they should be."""
    return cached is not None and fixture.is_live and cached.is_stale
