"""The display state of a match, for those who ask: as it was last computed, or computed now from what was last heard.

The live pipeline computes it whenever something changes, and everyone who asks gets that. Only
where it has nothing, for a match that has not begun or whose state has expired, it is computed
here, and kept for the next who asks.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tally.cricket.model.display import build_display
from tally.cricket.model.display_content import display_content
from tally.cricket.model.feed import MatchFeed, Side
from tally.cricket.model.payloads import max_content_bytes
from tally.cricket.model.records import NEUTRAL, CachedDisplay, Team
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.service.queries.matches import MatchService, MatchView
from tally.errors import Invalid
from tally.kit.clock import Clock

RUNNING_SECONDS: Final = 30
RESTING_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Shown:
    """A display state, and how old it is.

    `is_stale`: newer scores should have come and have not.
    """

    match_id: str
    view: str
    content: dict[str, Any]
    computed_at: int
    is_stale: bool


@dataclass(frozen=True, slots=True)
class DisplayService:
    """Display states by match and view."""

    matches: MatchService
    displays: DisplayCacheRepository
    clock: Clock

    async def get(self, match_id: str, team_id: str | None) -> Shown:
        """The state as a side sees it, or nobody in particular."""
        match = await self.matches.get(match_id)
        view = team_id or NEUTRAL
        if view != NEUTRAL and view not in match.fixture.team_ids:
            raise Invalid(
                "This team does not play in the match", code="team_not_in_match", field="teamId"
            )
        is_stale = match.fixture.is_live and match.heard is not None and match.heard.is_stale
        cached = await self.displays.get(match_id, view, self.clock.seconds())
        if cached is None or (
            match.heard is not None and match.heard.at > cached.computed_at + RUNNING_SECONDS * 1000
        ):
            cached = await self._compute(match, view, is_stale=is_stale)
        return Shown(
            match_id, view, msgspec.json.decode(cached.content), cached.computed_at, is_stale
        )

    async def _compute(self, match: MatchView, view: str, *, is_stale: bool) -> CachedDisplay:
        feed = _announced(match) if match.heard is None else match.heard.feed
        now = self.clock.milliseconds()
        state = build_display(feed, view, timestamp=now // 1000, is_stale=is_stale)
        computed = CachedDisplay(
            match_id=feed.match_id,
            team_id=view,
            content=msgspec.json.encode(
                display_content(state, max_content_bytes("update"))
            ).decode(),
            computed_at=now,
            expires_at=now // 1000
            + (RUNNING_SECONDS if feed.status.is_running else RESTING_SECONDS),
        )
        await self.displays.put(computed)
        return computed


def _announced(match: MatchView) -> MatchFeed:
    """A match that nothing was heard of yet: who plays, and when."""
    fixture = match.fixture
    home, away = (
        _side(team_id, team) for team_id, team in zip(fixture.team_ids, match.sides, strict=True)
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
    return (
        Side(team_id, "", "")
        if team is None
        else Side(team_id, team.name, team.code, team.image_url)
    )
