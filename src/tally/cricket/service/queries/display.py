"""Reads display states: cached by the pipeline, or computed on demand.

The live pipeline computes and caches the display state of a match on every change. For a match that
has not started, or whose cached state has expired, this service computes the state from the last
cached feed and caches it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tally.cricket.model.display import build_display
from tally.cricket.model.display_content import display_content
from tally.cricket.model.errors import team_not_in_match
from tally.cricket.model.feed import MatchFeed, Side
from tally.cricket.model.payloads import max_content_bytes
from tally.cricket.model.records import NEUTRAL, CachedDisplay, Team
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.service.queries.feeds import has_stale_scores
from tally.cricket.service.queries.matches import MatchService, MatchView
from tally.kit.clock import Clock

RUNNING_TTL_SECONDS: Final = 30
IDLE_TTL_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class MatchDisplay:
    """The display state of a match for one view.

    `encoded_content` is JSON. `is_stale` is set when the score service has not delivered newer
    scores in time.
    """

    match_id: str
    view: str
    encoded_content: str
    computed_at: int
    is_stale: bool

    @property
    def content(self) -> dict[str, Any]:
        return msgspec.json.decode(self.encoded_content, type=dict[str, Any])


@dataclass(frozen=True, slots=True)
class DisplayService:
    """Display states by match and view. A view is a team id or `NEUTRAL`."""

    matches: MatchService
    displays: DisplayCacheRepository
    active: ActiveMatchRepository
    clock: Clock

    async def get(self, match_id: str, team_id: str | None) -> MatchDisplay:
        """Return the display state for a team, or the neutral one without `team_id`."""
        fixture = await self.matches.fixture(match_id)
        view = team_id or NEUTRAL
        if view != NEUTRAL and view not in fixture.team_ids:
            raise team_not_in_match()
        feed = await self.matches.feeds.get(match_id)
        cached = await self.displays.get(match_id, view, self.clock.seconds())
        if cached is None or (
            feed is not None and feed.cached_at > cached.computed_at + RUNNING_TTL_SECONDS * 1000
        ):
            (match,) = await self.matches.views([fixture])
            cached = await self._compute(match, view)
        is_stale = has_stale_scores(fixture, feed)
        return MatchDisplay(match_id, view, cached.content, cached.computed_at, is_stale)

    async def content(self, match_id: str, view: str) -> Mapping[str, Any]:
        """Return the display content for a view."""
        return (await self.get(match_id, None if view == NEUTRAL else view)).content

    async def cached_content(self, match_id: str, view: str) -> Mapping[str, Any] | None:
        """Return the cached display content without computing it."""
        cached = await self.displays.get(match_id, view, self.clock.seconds())
        return None if cached is None else msgspec.json.decode(cached.content, type=dict[str, Any])

    async def _compute(self, match: MatchView, view: str) -> CachedDisplay:
        feed = _scheduled_feed(match) if match.cached is None else match.cached.feed
        now = self.clock.milliseconds()
        state = build_display(feed, view, timestamp=now // 1000, is_stale=match.is_stale)
        content = display_content(state, max_content_bytes("update"))
        computed = CachedDisplay(
            match_id=feed.match_id,
            team_id=view,
            content=msgspec.json.encode(content).decode(),
            computed_at=now,
            expires_at=now // 1000
            + (RUNNING_TTL_SECONDS if feed.status.is_running else IDLE_TTL_SECONDS),
        )
        await self.displays.put(computed)
        return computed


def _scheduled_feed(match: MatchView) -> MatchFeed:
    """Return a feed without scores, for a match that the score service has not covered yet."""
    fixture = match.fixture
    home, away = (
        _side(team_id, team)
        for team_id, team in zip(fixture.team_ids, match.team_records, strict=True)
    )
    return MatchFeed(
        match_id=fixture.match_id,
        league_id=fixture.league_id,
        season_id=fixture.season_id,
        match_type=fixture.match_type,
        total_overs=None,
        teams=(home, away),
        starts_at=fixture.start_time,
        status=fixture.status,
        status_text="",
        is_live=fixture.is_live,
        received_at=fixture.updated_at,
        note=fixture.note,
        winner_team_id=fixture.winner_team_id,
    )


def _side(team_id: str, team: Team | None) -> Side:
    if team is None:
        return Side(team_id, "", "")
    return Side(team_id, team.name, team.code, team.image_url)
