"""The SportMonks gateway: live scores, single matches and reference data as model objects.

One request returns all live matches. The gateway includes balls in it while a match of a marquee
league is live, and keeps the balls of those leagues only. A malformed item is logged and skipped.
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

INCLUDE_SCORES: Final = (
    "localteam,visitorteam,runs,scoreboards,lineup,"
    "batting.batsman,batting.result,bowling.bowler,manofmatch"
)
INCLUDE_BALLS: Final = f"{INCLUDE_SCORES},balls"
# Decoding yields to the event loop after this many bytes.
YIELD_BYTES: Final = 65_536

T = TypeVar("T")
R = TypeVar("R")

_log = logs.logger()


class SportMonksGateway:
    """Implements the ports `LiveScores` and `ReferenceData`."""

    def __init__(
        self, client: SportMonksClient, clock: Clock, marquee_leagues: Sequence[str] = ()
    ) -> None:
        self._client = client
        self._clock = clock
        self._marquee = frozenset(marquee_leagues)
        self._includes_balls = False
        self._fixture_pages = 1

    async def live(self) -> LivePoll:
        """Return all matches that are currently covered."""
        poll = await self._poll()
        has_marquee = any(feed.league_id in self._marquee for feed in poll.feeds)
        if has_marquee and not self._includes_balls:
            self._includes_balls = True
            return await self._poll()
        self._includes_balls = has_marquee
        return poll

    def live_interval(self) -> float:
        """Return the seconds between polls that the remaining quota allows."""
        return self._client.interval("livescores")

    def fixtures_interval(self) -> float:
        """Return the seconds between syncs of fixtures that the remaining quota allows."""
        return self._fixture_pages * self._client.interval("fixtures")

    async def match(self, match_id: str) -> MatchFeed | None:
        """Return one match, with its balls if it belongs to a marquee league."""
        try:
            response = await self._client.get_item(
                f"/fixtures/{match_id}", {"include": INCLUDE_BALLS}
            )
        except NotFound:
            return None
        feeds = await self._decode(
            [response.data], payloads.SportMonksFixture, "fixture", self._feed
        )
        return feeds[0] if feeds else None

    async def fixtures(
        self, leagues: Sequence[records.League], since: str, until: str
    ) -> AsyncGenerator[Sequence[tuple[records.Fixture, MatchFeed]], None]:
        """Yield pages of the leagues' matches that start on a day from `since` to `until`."""
        codes = {league.league_id: league.code for league in leagues}
        if not codes:
            return
        parameters = {
            # With scorecards: a cached scorecard must not be replaced by totals only.
            "include": INCLUDE_SCORES,
            "filter[league_id]": ",".join(codes),
            "filter[starts_between]": f"{since},{until}",
            "sort": "starting_at",
        }

        def record_and_feed(
            fixture: payloads.SportMonksFixture,
        ) -> tuple[records.Fixture, MatchFeed]:
            now = self._clock.milliseconds()
            return (
                fixture_record(fixture, now, codes.get(str(fixture.league_id))),
                translate_match(fixture, now, with_balls=False),
            )

        self._fixture_pages = 0
        async for page in self._client.get_pages("/fixtures", parameters):
            self._fixture_pages += 1
            yield await self._decode(page, payloads.SportMonksFixture, "fixture", record_and_feed)

    async def leagues(self) -> list[records.League]:
        response = await self._client.get_list("/leagues", {})
        now = self._clock.milliseconds()
        return await self._decode(
            response.data,
            payloads.SportMonksLeague,
            "league",
            lambda league: league_record(league, now),
        )

    async def teams(self) -> list[records.Team]:
        response = await self._client.get_list("/teams", {})
        now = self._clock.milliseconds()
        return await self._decode(
            response.data, payloads.SportMonksTeam, "team", lambda team: team_record(team, now)
        )

    async def season_teams(self, league: records.League) -> list[records.TeamSeason]:
        """Return the teams of the league's current season."""
        if league.season_id is None:
            return []
        try:
            response = await self._client.get_item(
                f"/seasons/{league.season_id}", {"include": "teams"}
            )
        except NotFound:
            return []
        now = self._clock.milliseconds()
        seasons = await self._decode(
            [response.data], payloads.SportMonksSeason, "season", lambda season: season
        )
        return [
            team_season_record(season, team, league.league_id, now)
            for season in seasons
            for team in season.teams or ()
        ]

    async def _poll(self) -> LivePoll:
        response = await self._client.get_list(
            "/livescores", {"include": INCLUDE_BALLS if self._includes_balls else INCLUDE_SCORES}
        )
        feeds = await self._decode(response.data, payloads.SportMonksFixture, "fixture", self._feed)
        match_ids = {feed.match_id for feed in feeds} | {
            match_id for raw in response.data if (match_id := _decode_id(raw))
        }
        return LivePoll(tuple(feeds), frozenset(match_ids), self._clock.milliseconds())

    def _feed(self, fixture: payloads.SportMonksFixture) -> MatchFeed:
        return translate_match(
            fixture, self._clock.milliseconds(), str(fixture.league_id) in self._marquee
        )

    async def _decode(
        self, items: Sequence[msgspec.Raw], kind: type[T], name: str, convert: Callable[[T], R]
    ) -> list[R]:
        """Decode and convert items; log and skip malformed ones.

        Yields to the event loop regularly, so that large responses do not delay requests.
        """
        converted, decoded_bytes = list[R](), 0
        for raw in items:
            decoded_bytes += len(bytes(raw))
            if decoded_bytes > YIELD_BYTES:
                decoded_bytes = 0
                await asyncio.sleep(0)
            try:
                converted.append(convert(msgspec.json.decode(raw, type=kind, strict=False)))
            except (
                msgspec.DecodeError,
                UnicodeDecodeError,
                RecursionError,
                MalformedFixture,
            ) as error:
                _log.warning(
                    f"SportMonks {name} skipped: malformed payload",
                    action="payload_skipped",
                    id=_decode_id(raw),
                    error=error,
                )
        return converted


def _decode_id(raw: msgspec.Raw) -> str | None:
    """Return the id of a malformed item, if at least that can be decoded."""
    try:
        return str(msgspec.json.decode(raw, type=payloads.SportMonksId, strict=False).id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
