"""What was last heard of each match, kept in `cricket-fixture-cache` for those who ask while the score service does not answer.

The scorecard is kept as JSON; the balls of a match are with `match-processing-state`. A live match
is heard of every few seconds, so its entry lives for hours only, and one that has not been renewed
for a while is stale: it is shown, and marked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import CachedFixture
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

KNOWN_SECONDS: Final = 1.0
STALE_MS: Final = 30_000
LIVE_SECONDS: Final = 6 * 3_600
COMING_SECONDS: Final = 7 * 86_400
OVER_SECONDS: Final = 30 * 86_400

_decoder: Final = msgspec.json.Decoder(MatchFeed)


@dataclass(frozen=True, slots=True)
class Heard:
    """A match as it was last heard of, and what was added to it.

    `is_stale`: it should have been heard of since.
    """

    feed: MatchFeed
    at: int
    is_stale: bool
    enrichment: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FeedCache:
    """`known` keeps for a moment what was read, since lists and pages ask for the same matches again and again."""

    cache: FixtureCacheRepository
    clock: Clock
    known: TTLCache[str, Heard]

    async def put(self, feed: MatchFeed) -> None:
        """Remember a match as it is now."""
        await self.cache.put(entry_of(feed, self.clock.milliseconds()))
        self.known.remove(feed.match_id)

    async def get(self, match_id: str) -> Heard | None:
        heard = self.known.get(match_id)
        if heard is None:
            found = await self.cache.get(match_id, self.clock.seconds())
            heard = None if found is None else self._heard(found)
        return heard

    async def get_many(self, match_ids: Iterable[str]) -> Mapping[str, Heard]:
        """Those that were heard of, by id."""
        wanted = list(dict.fromkeys(match_ids))
        heard = {
            match_id: each for match_id in wanted if (each := self.known.get(match_id)) is not None
        }
        missing = [match_id for match_id in wanted if match_id not in heard]
        for found in (
            (await self.cache.get_many(missing, self.clock.seconds())).values() if missing else ()
        ):
            heard[found.match_id] = self._heard(found)
        return heard

    def _heard(self, found: CachedFixture) -> Heard:
        feed = _decoder.decode(found.content)
        is_late = found.cached_at + STALE_MS < self.clock.milliseconds()
        heard = Heard(
            feed, found.cached_at, feed.status.is_running and is_late, found.enrichment or {}
        )
        self.known.put(found.match_id, heard)
        return heard


def entry_of(feed: MatchFeed, now: int) -> CachedFixture:
    """The cache's entry for a match, without its balls; how long it lives depends on how the match stands."""
    scorecard = msgspec.structs.replace(feed, balls=None)
    return CachedFixture(
        match_id=feed.match_id,
        league_id=feed.league_id,
        starting_at=feed.starts_at,
        content=msgspec.json.encode(scorecard).decode(),
        cached_at=now,
        expires_at=now // 1000 + _lifetime(feed.status),
    )


def _lifetime(status: MatchStatus) -> int:
    if status.is_over:
        return OVER_SECONDS
    return LIVE_SECONDS if status.is_running else COMING_SECONDS
