"""Syncs leagues, teams and fixtures from the score service to the tables.

Syncs are idempotent. Unchanged records are not written. Fields that administrators or the live
pipeline own are preserved. The gateway skips and logs malformed records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final

import msgspec

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import (
    CachedFixture,
    Fixture,
    League,
    Team,
    fixture_follow_expiry,
)
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.fixtures import IS_PENDING, FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.cricket.service.ports import ReferenceData
from tally.cricket.service.queries.feeds import CachedFeed, FeedCache, feed_cache_entry
from tally.cricket.service.queries.leagues import LeagueService
from tally.kit import logs
from tally.kit.clock import Clock

PAST: Final = timedelta(days=2)
FUTURE: Final = timedelta(days=30)
# Fixture fields that only jobs write.
JOB_FIELDS: Final = frozenset(
    {
        "match_id",
        "updated_at",
        "live_updated_at",
        "archived_at",
        "toss_notified_at",
        "replay_of",
        "replay_expires_at",
        "replay_speed",
        "followers_pending",
        "followers_cursor",
        "held_at",
        "corrected_result",
    }
)
# Fixture fields that the poller owns while the match is live: its data is newer.
LIVE_FIELDS: Final = frozenset({"status", "note", "toss_team_id", "elected", "winner_team_id"})
TEAM_FIELDS: Final = frozenset({"home_team_id", "away_team_id"})
EDITABLE_TEAM_FIELDS: Final = frozenset({"name", "code", "image_url"})

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class SyncCounts:
    """The number of records that a sync created, updated and left unchanged."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0

    def __add__(self, other: "SyncCounts") -> "SyncCounts":
        return SyncCounts(
            self.created + other.created,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncService:
    """The syncs of leagues, teams and fixtures.

    It has ten fields because a sync writes six tables and invalidates two caches.
    """

    source: ReferenceData
    leagues: LeagueRepository
    league_service: LeagueService
    teams: TeamRepository
    seasons: TeamSeasonRepository
    fixtures: FixtureRepository
    cache: FixtureCacheRepository
    follows: FollowRepository
    feeds: FeedCache
    clock: Clock

    async def sync_leagues(self) -> SyncCounts:
        """Write new and changed leagues; administrators decide which leagues are active."""
        known = {league.league_id: league for league in await self.leagues.all()}
        counts = SyncCounts()
        for league in await self.source.leagues():
            counts += await self._sync_league(league, known.get(league.league_id))
        self.league_service.clear_cache()
        return _logged("leagues", counts)

    async def _sync_league(self, league: League, known: League | None) -> SyncCounts:
        if known is None:
            await self.leagues.put(league)
            return SyncCounts(created=1)
        preserved: dict[str, Any] = {
            "active": known.active,
            "version": known.version + 1,
            "edited_at": known.edited_at,
        }
        if known.edited_at is not None:
            preserved |= {"name": known.name, "image_url": known.image_url}
        merged = replace(league, **preserved)
        if replace(merged, version=known.version, updated_at=known.updated_at) == known:
            return SyncCounts(unchanged=1)
        # The write fails if an administrator changed the league meanwhile; the next sync retries.
        return SyncCounts(updated=1) if await self.leagues.put(merged) else SyncCounts(unchanged=1)

    async def sync_teams(self) -> SyncCounts:
        """Write new and changed teams, and the teams of each active league's season."""
        known = {team.team_id: team for team in await self.teams.all()}
        teams = await self.source.teams()
        new = [team for team in teams if team.team_id not in known]
        await self.teams.write_batch(new)
        counts = SyncCounts(created=len(new))
        for team in teams:
            if team.team_id in known:
                counts += await self._sync_team(team, known[team.team_id])
        for league in await self.leagues.active():
            if league.season_id is not None:
                await self.seasons.write_batch(await self.source.season_teams(league))
        return _logged("teams", counts)

    async def _sync_team(self, team: Team, known: Team) -> SyncCounts:
        preserved = {"team_id", "updated_at", "edited_at", "color"} | (
            EDITABLE_TEAM_FIELDS if known.edited_at is not None else set()
        )
        changes = _changes(asdict(known), asdict(team), preserved)
        if not changes:
            return SyncCounts(unchanged=1)
        await self.teams.update(team.team_id, **changes, updated_at=team.updated_at)
        return SyncCounts(updated=1)

    async def sync_fixtures(self) -> SyncCounts:
        """Sync the fixtures of the active leagues from 2 days ago to 30 days ahead."""
        now = self.clock.now()
        since, until = (moment.date().isoformat() for moment in (now - PAST, now + FUTURE))
        leagues = await self.leagues.active()
        counts = SyncCounts()
        if leagues:
            cached = await self.feeds.get_all()
            async for page in self.source.fixtures(leagues, since, until):
                counts += await self._sync_page(page, cached)
        return _logged("fixtures", counts)

    async def _sync_page(
        self, page: Sequence[tuple[Fixture, MatchFeed]], cached: Mapping[str, CachedFixture]
    ) -> SyncCounts:
        known = await self.fixtures.get_many(fixture.match_id for fixture, _ in page)
        new = [
            replace(fixture, followers_pending=IS_PENDING)
            for fixture, _ in page
            if fixture.match_id not in known
        ]
        await self.fixtures.write_batch(new)
        await self._cache_feeds(
            [feed for fixture, feed in page if not _is_polled(known.get(fixture.match_id))], cached
        )
        counts = SyncCounts(created=len(new))
        for fixture, _ in page:
            if fixture.match_id in known:
                counts += await self.sync_fixture(fixture, known[fixture.match_id])
        return counts

    async def sync_fixture(self, fixture: Fixture, known: Fixture) -> SyncCounts:
        """Write the changes of a fixture, and move its follows with it."""
        preserved = JOB_FIELDS | LIVE_FIELDS if _is_polled(known) else JOB_FIELDS
        changes = _changes(asdict(known), asdict(fixture), preserved)
        if not changes:
            await self._move_follows(known, changes)
            return SyncCounts(unchanged=1)
        if not changes.keys().isdisjoint(TEAM_FIELDS):
            changes |= {"followers_pending": IS_PENDING, "followers_cursor": None}
        # Before and after: no follow is lost if this stops in between, or is made in between.
        await self._move_follows(known, changes)
        await self.fixtures.update(fixture.match_id, **changes, updated_at=fixture.updated_at)
        await self._move_follows(known, changes)
        return SyncCounts(updated=1)

    async def _move_follows(self, known: Fixture, changes: Mapping[str, Any]) -> None:
        """Move the expiry of follows with the match; those of a postponed one wait for its date."""
        fixture, now = replace(known, **changes), self.clock.milliseconds()
        is_moved = "start_time" in changes or "match_type" in changes
        if is_moved or fixture.status is MatchStatus.POSTPONED:
            expires_at = fixture_follow_expiry(fixture, now)
            await self.follows.move(fixture.match_id, expires_at, now // 1000)

    async def _cache_feeds(
        self, feeds: Sequence[MatchFeed], cached: Mapping[str, CachedFixture]
    ) -> None:
        """Cache the feeds of matches that are not live; never replace a scorecard by less."""
        now = self.clock.milliseconds()
        entries = [
            feed_cache_entry(feed, now)
            for feed in feeds
            if (entry := cached.get(feed.match_id)) is None
            or _is_update(feed, self.feeds.decode(entry))
        ]
        await self.cache.put_batch(entries, now)


def _logged(resource: str, counts: SyncCounts) -> SyncCounts:
    _log.info("Sync completed", action="cricket_sync", what=resource, **asdict(counts))
    return counts


def _changes(
    known: Mapping[str, Any], received: Mapping[str, Any], preserved: frozenset[str] | set[str]
) -> dict[str, Any]:
    return {
        name: value
        for name, value in received.items()
        if name not in preserved and value != known[name]
    }


def _is_polled(known: Fixture | None) -> bool:
    """Whether the pipeline owns the feed, or an operator has corrected it."""
    return known is not None and (known.is_polled or known.corrected_result is not None)


def _is_update(feed: MatchFeed, cached: CachedFeed) -> bool:
    if cached.feed.innings and not feed.innings:
        return False
    comparable = msgspec.structs.replace(feed, received_at=cached.feed.received_at, balls=None)
    return comparable != cached.feed
