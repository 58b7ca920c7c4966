"""Leagues, sides and fixtures from the score service into our tables.

Each can be run again at any time: what is the same is not written, what an administrator or the
live pipeline wrote is kept, and what the service has in a form that cannot be read is left out by
the gateway and counted there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace as replaced

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.records import Fixture, League, Team
from tally.cricket.repository.fixture_cache import FixtureCacheRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.cricket.service.ports import ReferenceData
from tally.cricket.service.queries.feeds import FeedCache, Heard, entry_of
from tally.cricket.service.queries.leagues import LeagueService
from tally.kit import logs
from tally.kit.clock import Clock

BEFORE: Final = timedelta(days=2)
AFTER: Final = timedelta(days=30)
# Of a fixture, what only our own jobs write.
OURS: Final = frozenset(
    {
        "match_id",
        "updated_at",
        "live_updated_at",
        "archived_at",
        "toss_notified_at",
        "replay_of",
        "replay_expires_at",
        "replay_speed",
    }
)
# Of a live fixture, the poller knows these better than the list of fixtures does.
LIVE: Final = frozenset({"status", "note", "toss_team_id", "elected", "winner_team_id"})
EDITABLE_TEAM: Final = frozenset({"name", "code", "image_url"})

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Synced:
    """How many are new, how many changed, and how many were as they should be."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0

    def __add__(self, other: "Synced") -> "Synced":
        return Synced(
            self.created + other.created,
            self.updated + other.updated,
            self.unchanged + other.unchanged,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncService:
    """The three syncs."""

    source: ReferenceData
    leagues: LeagueRepository
    league_service: LeagueService
    teams: TeamRepository
    seasons: TeamSeasonRepository
    fixtures: FixtureRepository
    cache: FixtureCacheRepository
    feeds: FeedCache
    clock: Clock

    async def sync_leagues(self) -> Synced:
        """Put each league that is new or has changed; whether it is active is for administrators to say."""
        known = {league.league_id: league for league in await self.leagues.all()}
        done = Synced()
        for league in await self.source.leagues():
            done += await self._sync_league(league, known.get(league.league_id))
        self.league_service.forget()
        return self._told("leagues", done)

    async def _sync_league(self, league: League, known: League | None) -> Synced:
        if known is None:
            await self.leagues.put(league)
            return Synced(created=1)
        kept: dict[str, Any] = {
            "active": known.active,
            "version": known.version + 1,
            "edited_at": known.edited_at,
        }
        if known.edited_at is not None:
            kept |= {"name": known.name, "image_url": known.image_url}
        merged = replace(league, **kept)
        if replace(merged, version=known.version, updated_at=known.updated_at) == known:
            return Synced(unchanged=1)
        # One that an administrator changes in this moment is left for the next run.
        return Synced(updated=1) if await self.leagues.put(merged) else Synced(unchanged=1)

    async def sync_teams(self) -> Synced:
        """Write sides that are new, update those that have changed, and the sides of each active league's season."""
        known = {team.team_id: team for team in await self.teams.all()}
        found = await self.source.teams()
        new = [team for team in found if team.team_id not in known]
        await self.teams.write_batch(new)
        done = Synced(created=len(new))
        for team in found:
            if team.team_id in known:
                done += await self._sync_team(team, known[team.team_id])
        for league in await self.leagues.active():
            if league.season_id is not None:
                await self.seasons.write_batch(await self.source.season_teams(league))
        return self._told("teams", done)

    async def _sync_team(self, team: Team, known: Team) -> Synced:
        kept = {"team_id", "updated_at", "edited_at", "color"} | (
            EDITABLE_TEAM if known.edited_at is not None else set()
        )
        changes = _changes(asdict(known), asdict(team), kept)
        if not changes:
            return Synced(unchanged=1)
        await self.teams.update(team.team_id, **changes, updated_at=team.updated_at)
        return Synced(updated=1)

    async def sync_fixtures(self) -> Synced:
        """The matches of the active leagues from two days ago to thirty days ahead, page by page."""
        now = self.clock.now()
        since, until = (moment.date().isoformat() for moment in (now - BEFORE, now + AFTER))
        leagues = await self.leagues.active()
        done = Synced()
        if leagues:
            async for page in self.source.fixtures(leagues, since, until):
                done += await self._sync_page(page)
        return self._told("fixtures", done)

    async def _sync_page(self, page: Sequence[tuple[Fixture, MatchFeed]]) -> Synced:
        known = await self.fixtures.get_many(fixture.match_id for fixture, _ in page)
        new = [fixture for fixture, _ in page if fixture.match_id not in known]
        await self.fixtures.write_batch(new)
        await self._cache(
            [feed for fixture, feed in page if not _is_live(known.get(fixture.match_id))]
        )
        done = Synced(created=len(new))
        for fixture, _ in page:
            if fixture.match_id in known:
                done += await self._sync_fixture(fixture, known[fixture.match_id])
        return done

    async def _sync_fixture(self, fixture: Fixture, known: Fixture) -> Synced:
        changes = _changes(
            asdict(known), asdict(fixture), OURS | (LIVE if known.is_live else frozenset())
        )
        if not changes:
            return Synced(unchanged=1)
        await self.fixtures.update(fixture.match_id, **changes, updated_at=fixture.updated_at)
        return Synced(updated=1)

    async def _cache(self, feeds: Sequence[MatchFeed]) -> None:
        """Keep what was told of matches that are not live; a scorecard is never replaced by less."""
        heard = await self.feeds.get_many(feed.match_id for feed in feeds)
        now = self.clock.milliseconds()
        news = [entry_of(feed, now) for feed in feeds if _is_news(feed, heard.get(feed.match_id))]
        await self.cache.put_batch(news, now)

    def _told(self, what: str, done: Synced) -> Synced:
        _log.info("Synced", action="cricket_sync", what=what, **asdict(done))
        return done


def _changes(
    known: Mapping[str, Any], told: Mapping[str, Any], kept: frozenset[str] | set[str]
) -> dict[str, Any]:
    return {
        name: value for name, value in told.items() if name not in kept and value != known[name]
    }


def _is_live(known: Fixture | None) -> bool:
    return known is not None and known.is_live


def _is_news(feed: MatchFeed, heard: Heard | None) -> bool:
    if heard is None:
        return True
    if heard.feed.innings and not feed.innings:
        return False
    same_moment = replaced(feed, received_at=heard.feed.received_at, balls=None)
    return same_moment != heard.feed
