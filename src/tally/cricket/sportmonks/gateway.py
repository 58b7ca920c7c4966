"""SportMonks as the backend sees it: what is live now, one match, and the schedule, leagues, teams and seasons.

One request tells of all live matches. Balls are asked for as soon as a match of a marquee league is
among them, and kept for those alone. Something unreadable among the rest is logged and left out,
and never stops the others.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, TypeVar

import msgspec

from tally.cricket.model import records
from tally.cricket.model.feed import LivePoll, MatchFeed
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.client import SportMonksClient
from tally.cricket.sportmonks.conversions import MalformedFixture
from tally.cricket.sportmonks.records import (
    fixture_record,
    league_record,
    team_record,
    team_season_record,
)
from tally.cricket.sportmonks.translation import translate_match
from tally.errors import NotFound
from tally.kit import logs
from tally.kit.clock import Clock

SCORES: Final = "localteam,visitorteam,runs,scoreboards,lineup,batting.batsman,batting.result,bowling.bowler,manofmatch"
BALLS: Final = f"{SCORES},balls"
# So many bytes are read at a time.
BITE: Final = 65_536

T = TypeVar("T")
R = TypeVar("R")

_log = logs.logger()


class SportMonksGateway:
    """Scores and reference data.

    Trouble is Unavailable or RateLimited, and says when to come back if that is known.
    """

    def __init__(
        self, client: SportMonksClient, clock: Clock, marquee_leagues: Sequence[str] = ()
    ) -> None:
        self._client = client
        self._clock = clock
        self._marquee = frozenset(marquee_leagues)
        self._wants_balls = False

    async def live(self) -> LivePoll:
        """All matches that are covered now."""
        poll = await self._look()
        has_marquee = any(feed.league_id in self._marquee for feed in poll.feeds)
        if has_marquee and not self._wants_balls:
            self._wants_balls = True
            return await self._look()
        self._wants_balls = has_marquee
        return poll

    async def match(self, match_id: str) -> MatchFeed | None:
        """One match as it is now, with its balls if it is of a marquee league; None where there is none."""
        try:
            answer = await self._client.one(f"/fixtures/{match_id}", {"include": BALLS})
        except NotFound:
            return None
        found = await self._readable(
            [answer.data], payloads.SportMonksFixture, "fixture", self._feed
        )
        return found[0] if found else None

    async def fixtures(
        self, leagues: Sequence[records.League], since: str, until: str
    ) -> AsyncGenerator[Sequence[tuple[records.Fixture, MatchFeed]], None]:
        """The matches of these leagues that start on the days from `since` to `until` (2026-11-15), a page at a time."""
        codes = {league.league_id: league.code for league in leagues}
        if not codes:
            return
        asked = {
            # Whole scorecards: what is kept of a match that was live must not be replaced by its
            # totals alone.
            "include": SCORES,
            "filter[league_id]": ",".join(codes),
            "filter[starts_between]": f"{since},{until}",
            "sort": "starting_at",
        }

        def both(fixture: payloads.SportMonksFixture) -> tuple[records.Fixture, MatchFeed]:
            now = self._clock.milliseconds()
            return fixture_record(fixture, now, codes.get(str(fixture.league_id))), translate_match(
                fixture, now, with_balls=False
            )

        async for page in self._client.pages("/fixtures", asked):
            yield await self._readable(page, payloads.SportMonksFixture, "fixture", both)

    async def leagues(self) -> list[records.League]:
        answer = await self._client.many("/leagues", {})
        now = self._clock.milliseconds()
        return await self._readable(
            answer.data,
            payloads.SportMonksLeague,
            "league",
            lambda league: league_record(league, now),
        )

    async def teams(self) -> list[records.Team]:
        answer = await self._client.many("/teams", {})
        now = self._clock.milliseconds()
        return await self._readable(
            answer.data, payloads.SportMonksTeam, "team", lambda team: team_record(team, now)
        )

    async def season_teams(self, league: records.League) -> list[records.TeamSeason]:
        """The sides of the league's season that is on."""
        if league.season_id is None:
            return []
        try:
            answer = await self._client.one(f"/seasons/{league.season_id}", {"include": "teams"})
        except NotFound:
            return []
        now = self._clock.milliseconds()
        found = await self._readable(
            [answer.data], payloads.SportMonksSeason, "season", lambda season: season
        )
        return [
            team_season_record(season, team, league.league_id, now)
            for season in found
            for team in season.teams or ()
        ]

    async def _look(self) -> LivePoll:
        answer = await self._client.many(
            "/livescores", {"include": BALLS if self._wants_balls else SCORES}
        )
        feeds = await self._readable(answer.data, payloads.SportMonksFixture, "fixture", self._feed)
        match_ids = {feed.match_id for feed in feeds} | {
            match_id for raw in answer.data if (match_id := _id_of(raw))
        }
        return LivePoll(tuple(feeds), frozenset(match_ids), self._clock.milliseconds())

    def _feed(self, fixture: payloads.SportMonksFixture) -> MatchFeed:
        return translate_match(
            fixture, self._clock.milliseconds(), str(fixture.league_id) in self._marquee
        )

    async def _readable(
        self, items: Sequence[msgspec.Raw], kind: type[T], what: str, make: Callable[[T], R]
    ) -> list[R]:
        """Those that can be read; the others are told to the log.

        Between bites, whoever waits for an answer gets it.
        """
        found, bite = list[R](), 0
        for raw in items:
            bite += len(bytes(raw))
            if bite > BITE:
                bite = 0
                await asyncio.sleep(0)
            try:
                found.append(make(msgspec.json.decode(raw, type=kind, strict=False)))
            except (
                msgspec.DecodeError,
                UnicodeDecodeError,
                RecursionError,
                MalformedFixture,
            ) as error:
                _log.warning(
                    f"SportMonks told of a {what} that cannot be read",
                    action="sportmonks_unreadable",
                    id=_id_of(raw),
                    error=error,
                )
        return found


def _id_of(raw: msgspec.Raw) -> str | None:
    """The id of something unreadable, if at least that can be read."""
    try:
        return str(msgspec.json.decode(raw, type=payloads.SportMonksId, strict=False).id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
