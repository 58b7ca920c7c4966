"""Queries for administrators: the fixtures of a league and the pipeline state of a match."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from tally.cricket.model.errors import match_not_found
from tally.cricket.model.records import NEUTRAL, ActiveMatch, Fixture, ProcessingState
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True)
class MatchDiagnostics:
    """The stored pipeline state of a match.

    `hashes` maps each view to the hash of the content last pushed to it; `activities` counts Live
    Activities by status.
    """

    fixture: Fixture
    active: ActiveMatch | None
    processing: ProcessingState | None
    hashes: dict[str, str]
    activities: dict[str, int]
    followers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminService:
    """Rare queries that may read a whole partition or table."""

    fixtures: FixtureRepository
    active: ActiveMatchRepository
    processing: ProcessingRepository
    hashes: StateHashRepository
    activities: LiveActivityRepository
    follows: FollowRepository
    clock: Clock

    async def league_fixtures(
        self, league_id: str, limit: int, start: Mapping[str, Any] | None
    ) -> tuple[list[Fixture], Mapping[str, Any] | None]:
        """Return one page of a league's fixtures and the start key of the next page."""
        return await self.fixtures.by_league(league_id, limit, start)

    async def count_active_activities(self, match_ids: Iterable[str], limit: int) -> int:
        """Count the active Live Activities of these matches; stop at `limit`."""
        now, count = self.clock.milliseconds(), 0
        for match_id in match_ids:
            async with aclosing(self.activities.targets(match_id, now)) as pages:
                async for page in pages:
                    count += len(page)
                    if count >= limit:
                        return limit
        return count

    async def match_diagnostics(self, match_id: str) -> MatchDiagnostics:
        fixture = await self.fixtures.get(match_id)
        if fixture is None:
            raise match_not_found()
        now = self.clock.milliseconds()
        statuses = Counter(
            [
                activity.status.value
                async for activity in self.activities.list_by_match(match_id, now)
            ]
        )
        followers = 0
        async for _ in self.follows.list_by_match(match_id, now // 1000):
            followers += 1
        hashes = {
            view: await self.hashes.get(match_id, view) for view in (NEUTRAL, *fixture.team_ids)
        }
        return MatchDiagnostics(
            fixture=fixture,
            active=await self.active.get(match_id),
            processing=await self.processing.get(match_id, now // 1000),
            hashes={view: state.hash for view, state in hashes.items() if state is not None},
            activities=dict(statuses),
            followers=followers,
        )
