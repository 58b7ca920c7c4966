"""Matches as people ask for them: one, those that are live, and those of a time, with the names of leagues and sides.

A list is ordered by start and id, and a page ends at a place in that order, so that a list over
several leagues, each of which is a range of the index of its own, can be gone through page by page.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import Fixture, League, Team
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.queries.feeds import FeedCache, Heard
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.queries.teams import TeamService
from tally.errors import Invalid, NotFound
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache
from tally.store.values import Key

PAGE: Final = 100
KNOWN_SECONDS: Final = 1.0
MAX_PAGES: Final = 30
# Without a range: what began lately, and what the next weeks bring.
BEFORE: Final = timedelta(days=1)
AFTER: Final = timedelta(days=30)
LATEST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MatchView:
    """A match with what it takes to show it.

    Names are missing where a sync has not brought them yet.
    """

    fixture: Fixture
    league: League | None
    sides: tuple[Team | None, Team | None]
    heard: Heard | None


class Position(NamedTuple):
    """A place in the order of matches: after this one."""

    start_time: str
    match_id: str


class Span(NamedTuple):
    """A range of start times, both ends included."""

    since: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which matches: of one league or of all active ones, in a range of time, in a state."""

    league: str | None = None
    since: str | None = None
    until: str | None = None
    status: MatchStatus | None = None


Page: TypeAlias = tuple[tuple[MatchView, ...], Position | None]


@dataclass(frozen=True, slots=True)
class MatchService:
    """Matches by id, live ones, and lists.

    `known` keeps pages for a moment: the first one is what everybody asks for.
    """

    fixtures: FixtureRepository
    feeds: FeedCache
    teams: TeamService
    leagues: LeagueService
    clock: Clock
    known: TTLCache[tuple[Wanted, int, Position | None], Page]

    async def get(self, match_id: str) -> MatchView:
        (view,) = await self.views([await self.fixture(match_id)])
        return view

    async def fixture(self, match_id: str) -> Fixture:
        fixture = await self.fixtures.get(match_id)
        if fixture is None:
            raise NotFound("There is no such match", code="match_not_found")
        return fixture

    async def live(self) -> list[MatchView]:
        return await self.views(await self.fixtures.live())

    async def page(self, wanted: Wanted, limit: int, after: Position | None) -> Page:
        """At most `limit` matches after a place in the order, and the place where the next page starts."""
        question = (wanted, limit, after)
        page = self.known.get(question)
        if page is None:
            page = await self._page(wanted, limit, after)
            self.known.put(question, page)
        return page

    async def _page(self, wanted: Wanted, limit: int, after: Position | None) -> Page:
        span = self._span(wanted)
        codes = await self._codes(wanted.league)
        found = await asyncio.gather(
            *(self._of_league(code, span, wanted.status, limit, after) for code in codes)
        )
        merged = {each.match_id: each for league in found for each in league}
        if wanted.league is None and wanted.since is None:
            merged |= {
                each.match_id: each
                for each in await self._live_before(span.since, wanted.status, after)
            }
        ordered = sorted(merged.values(), key=_place)
        here = ordered[:limit]
        following = Position(*_place(here[-1])) if len(ordered) > limit else None
        return tuple(await self.views(here)), following

    async def views(self, fixtures: Sequence[Fixture]) -> list[MatchView]:
        """The matches with the names of their leagues and sides, and the scores that were last heard."""
        teams, leagues = await self.teams.by_id(), await self.leagues.by_id()
        heard = await self.feeds.get_many(each.match_id for each in fixtures)
        return [
            MatchView(
                each,
                leagues.get(each.league_id),
                (teams.get(each.home_team_id), teams.get(each.away_team_id)),
                heard.get(each.match_id),
            )
            for each in fixtures
        ]

    async def _codes(self, league: str | None) -> Iterable[str]:
        if league is not None:
            return [(await self.leagues.named(league)).code]
        return dict.fromkeys(each.code for each in await self.leagues.active())

    async def _of_league(
        self, code: str, span: Span, status: MatchStatus | None, limit: int, after: Position | None
    ) -> list[Fixture]:
        """More than `limit` of a league's matches if there are more, and never part of those that start at the same time."""
        since = max(span.since, after.start_time) if after else span.since
        found: list[Fixture] = []
        start: Key | None = None
        for _ in range(MAX_PAGES):
            page, start = await self.fixtures.by_date(code, since, span.until, PAGE, start)
            found += [each for each in page if _is_wanted(each, status, after)]
            if start is None or (
                len(found) > limit and page[-1].start_time > found[limit].start_time
            ):
                return found
        raise Invalid(
            "There are too many matches in this time; choose a shorter one",
            code="range_too_long",
            field="to",
        )

    async def _live_before(
        self, since: str, status: MatchStatus | None, after: Position | None
    ) -> list[Fixture]:
        """Those that are still on though they began before the range: a Test match takes five days."""
        live = await self.fixtures.live()
        return [
            each for each in live if each.start_time < since and _is_wanted(each, status, after)
        ]

    def _span(self, wanted: Wanted) -> Span:
        now = self.clock.now()
        since = _moment(wanted.since, "from") if wanted.since else now - BEFORE
        until = (
            _moment(wanted.until, "to", is_end=True)
            if wanted.until
            else min(max(since, now), LATEST - AFTER) + AFTER
        )
        if until < since:
            raise Invalid("to must not be before from", code="invalid_field", field="to")
        return Span(_text(since), _text(until))


_place = attrgetter("start_time", "match_id")


def _is_wanted(fixture: Fixture, status: MatchStatus | None, after: Position | None) -> bool:
    if status is not None and fixture.status != status:
        return False
    return after is None or _place(fixture) > after


def _moment(text: str, field: str, *, is_end: bool = False) -> datetime:
    """A moment, or a day: its first second, or its last."""
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
            f"{field} must be a day such as 2026-11-15 or a moment such as 2026-11-15T14:00:00Z"
        )
        raise Invalid(message, code="invalid_field", field=field) from error


def _text(moment: datetime) -> str:
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}Z"
