"""Reads matches: one, the live ones, and lists by league, start time and status.

A list is ordered by start time and match id. A page ends at a position in that order, so that a
list can merge several leagues, each of which is a separate range of the index.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from tally.cricket.model.errors import match_not_found
from tally.cricket.model.feed import InningsFeed, MatchStatus
from tally.cricket.model.records import Fixture, League, Team
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.queries.feeds import CachedFeed, FeedCache, has_stale_scores
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.queries.teams import TeamService
from tally.errors import Invalid
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

QUERY_PAGE: Final = 100
CACHE_SECONDS: Final = 1.0
MAX_QUERY_PAGES: Final = 30
# The default range of start times, relative to now.
DEFAULT_PAST: Final = timedelta(days=1)
DEFAULT_FUTURE: Final = timedelta(days=30)
LATEST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TeamInMatch:
    """A team of a match. `scores` has one text per innings of the team, in order of play."""

    team_id: str
    name: str
    code: str
    image_url: str
    scores: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MatchView:
    """A fixture with its league, teams and last cached feed.

    The league or a team is None until a sync has stored it.
    """

    fixture: Fixture
    league: League | None
    team_records: tuple[Team | None, Team | None]
    cached: CachedFeed | None

    @property
    def is_stale(self) -> bool:
        return has_stale_scores(self.fixture, self.cached)

    @property
    def is_over(self) -> bool:
        return self.fixture.status.is_over

    @property
    def league_name(self) -> str:
        return self.fixture.league_code if self.league is None else self.league.name

    @property
    def teams(self) -> tuple[TeamInMatch, TeamInMatch]:
        (home_id, away_id), (home, away) = self.fixture.team_ids, self.team_records
        return self._team(home_id, home), self._team(away_id, away)

    def _team(self, team_id: str, team: Team | None) -> TeamInMatch:
        """Describe a team from the table, else from the stored enrichment, else from the feed."""
        feed = None if self.cached is None else self.cached.feed
        scores = () if feed is None else tuple(_scores(feed.innings, team_id))
        if team is not None:
            return TeamInMatch(team_id, team.name, team.code, team.image_url, scores)
        enriched = {} if self.cached is None else self.cached.enrichment.get("teams", {})
        if team_id in enriched:
            stored = enriched[team_id]
            return TeamInMatch(team_id, stored["name"], stored["code"], stored["imageUrl"], scores)
        side = None if feed is None else feed.side(team_id)
        if side is not None:
            return TeamInMatch(team_id, side.name, side.code, side.image_url, scores)
        return TeamInMatch(team_id, "", "", "", scores)


def _scores(innings: Iterable[InningsFeed], team_id: str) -> Iterable[str]:
    for batted in innings:
        if batted.team_id == team_id:
            declared = "d" if batted.is_declared else ""
            yield f"{batted.runs}/{batted.wickets}{declared} ({batted.overs})"


class Position(NamedTuple):
    """A position in the order of matches: directly after this match."""

    start_time: str
    match_id: str


class StartRange(NamedTuple):
    """An inclusive range of start times."""

    since: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchFilter:
    """Selects matches by league (all active ones if None), range of start times and status."""

    league: str | None = None
    since: str | None = None
    until: str | None = None
    status: MatchStatus | None = None


MatchViewPage: TypeAlias = tuple[tuple[MatchView, ...], Position | None]


@dataclass(frozen=True, slots=True)
class MatchService:
    """Matches by id, live matches and lists.

    `cache` keeps pages for a second, because most clients request the first page.
    """

    fixtures: FixtureRepository
    feeds: FeedCache
    teams: TeamService
    leagues: LeagueService
    clock: Clock
    cache: TTLCache[tuple[MatchFilter, int, Position | None], MatchViewPage]

    async def get(self, match_id: str) -> MatchView:
        fixture, cached = await self.fixture(match_id), await self.feeds.get(match_id)
        (view,) = await self.views([fixture], {} if cached is None else {match_id: cached})
        return view

    async def fixture(self, match_id: str) -> Fixture:
        fixture = await self.fixtures.get(match_id)
        if fixture is None:
            raise match_not_found()
        return fixture

    async def live(self) -> list[MatchView]:
        return await self.views(
            [fixture for fixture in await self.fixtures.live() if fixture.is_live]
        )

    async def page(
        self, match_filter: MatchFilter, limit: int, after: Position | None
    ) -> MatchViewPage:
        """Return at most `limit` matches after a position, and the position of the next page."""
        key = (match_filter, limit, after)
        page = self.cache.get(key)
        if page is None:
            page = await self._page(match_filter, limit, after)
            self.cache.put(key, page)
        return page

    async def _page(
        self, match_filter: MatchFilter, limit: int, after: Position | None
    ) -> MatchViewPage:
        start_range = self._start_range(match_filter)
        codes = await self._league_codes(match_filter.league)
        by_league = await asyncio.gather(
            *(
                self._league_matches(code, start_range, match_filter.status, limit, after)
                for code in codes
            )
        )
        merged = {fixture.match_id: fixture for fixtures in by_league for fixture in fixtures}
        if match_filter.league is None and match_filter.since is None:
            earlier = await self._live_before(start_range.since, match_filter.status, after)
            merged |= {fixture.match_id: fixture for fixture in earlier}
        ordered = sorted(merged.values(), key=_position)
        page = ordered[:limit]
        next_position = Position(*_position(page[-1])) if len(ordered) > limit else None
        feeds = {} if match_filter.league is None else await self._league_feeds(page)
        return tuple(await self.views(page, feeds)), next_position

    async def _league_feeds(self, fixtures: Sequence[Fixture]) -> Mapping[str, CachedFeed]:
        """Return the cached feeds of a league's matches, which are ordered by start time."""
        if not fixtures:
            return {}
        first, last = fixtures[0], fixtures[-1]
        return await self.feeds.get_by_league(first.league_id, first.start_time, last.start_time)

    async def views(
        self, fixtures: Sequence[Fixture], known: Mapping[str, CachedFeed] = MappingProxyType({})
    ) -> list[MatchView]:
        """Add the league, teams and cached feed to each fixture; `known` are feeds by match id."""
        teams, leagues = await self.teams.by_id(), await self.leagues.by_id()
        unknown = [fixture.match_id for fixture in fixtures if fixture.match_id not in known]
        feeds = {**known, **await self.feeds.get_many(unknown)}
        return [
            MatchView(
                fixture,
                leagues.get(fixture.league_id),
                (teams.get(fixture.home_team_id), teams.get(fixture.away_team_id)),
                feeds.get(fixture.match_id),
            )
            for fixture in fixtures
        ]

    async def _league_codes(self, league: str | None) -> Iterable[str]:
        if league is not None:
            return [(await self.leagues.find(league)).code]
        return dict.fromkeys(active.code for active in await self.leagues.active())

    async def _league_matches(
        self,
        code: str,
        start_range: StartRange,
        status: MatchStatus | None,
        limit: int,
        after: Position | None,
    ) -> list[Fixture]:
        """Return more than `limit` matches of a league if there are more.

        Matches with the same start time are either all in the result or all missing.
        """
        since = max(start_range.since, after.start_time) if after else start_range.since
        found: list[Fixture] = []
        start: Mapping[str, Any] | None = None
        for _ in range(MAX_QUERY_PAGES):
            page, start = await self.fixtures.by_date(
                code, since, start_range.until, QUERY_PAGE, start
            )
            found += [fixture for fixture in page if _is_selected(fixture, status, after)]
            if start is None or (
                len(found) > limit and page[-1].start_time > found[limit].start_time
            ):
                return found
        raise Invalid(
            "The range from..to contains too many matches; use a shorter range",
            code="range_too_long",
            field="to",
        )

    async def _live_before(
        self, since: str, status: MatchStatus | None, after: Position | None
    ) -> list[Fixture]:
        """Return live matches that started before the range; a Test match takes five days."""
        return [
            fixture
            for fixture in await self.fixtures.live()
            if fixture.start_time < since and _is_selected(fixture, status, after)
        ]

    def _start_range(self, match_filter: MatchFilter) -> StartRange:
        now = self.clock.now()
        since = (
            _parse_time(match_filter.since, "from") if match_filter.since else now - DEFAULT_PAST
        )
        until = (
            _parse_time(match_filter.until, "to", is_end=True)
            if match_filter.until
            else min(max(since, now), LATEST - DEFAULT_FUTURE) + DEFAULT_FUTURE
        )
        if until < since:
            raise Invalid("to must not be before from", code="invalid_field", field="to")
        return StartRange(_format_time(since), _format_time(until))


_position = attrgetter("start_time", "match_id")


def _is_selected(fixture: Fixture, status: MatchStatus | None, after: Position | None) -> bool:
    if status is not None and fixture.status != status:
        return False
    return after is None or _position(fixture) > after


def _parse_time(text: str, field: str, *, is_end: bool = False) -> datetime:
    """Parse a date-time or a date; a date means its first second, or its last with `is_end`."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return (
            moment + timedelta(days=1, seconds=-1)
            if is_end and len(text) <= len("2026-11-15")
            else moment
        )
    except (ValueError, OverflowError) as error:
        message = (
            f"{field} must be a date such as 2026-11-15 or a time such as 2026-11-15T14:00:00Z"
        )
        raise Invalid(message, code="invalid_field", field=field) from error


def _format_time(moment: datetime) -> str:
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}Z"
