"""What operators may look into: the fixtures of a league, and what the live pipeline remembers of a match."""

from collections import Counter
from dataclasses import dataclass

from tally.cricket.model.records import NEUTRAL, ActiveMatch, Fixture, ProcessingState
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.processing import ProcessingRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.errors import NotFound
from tally.kit.clock import Clock
from tally.store.values import Key


@dataclass(frozen=True, slots=True)
class Remembered:
    """A match as the pipeline remembers it: counts of followers and Live Activities, and the hash last pushed to each view."""

    fixture: Fixture
    active: ActiveMatch | None
    processing: ProcessingState | None
    hashes: dict[str, str]
    activities: dict[str, int]
    followers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminService:
    """Look-ups for operators: rare, and allowed to cost something."""

    fixtures: FixtureRepository
    active: ActiveMatchRepository
    processing: ProcessingRepository
    hashes: StateHashRepository
    activities: LiveActivityRepository
    follows: FollowRepository
    clock: Clock

    async def of_league(
        self, league_id: str, limit: int, start: Key | None
    ) -> tuple[list[Fixture], Key | None]:
        return await self.fixtures.by_league(league_id, limit, start)

    async def state(self, match_id: str) -> Remembered:
        fixture = await self.fixtures.get(match_id)
        if fixture is None:
            raise NotFound("There is no such match", code="match_not_found")
        now = self.clock.milliseconds()
        statuses = Counter(
            [activity.status.value async for activity in self.activities.of_match(match_id, now)]
        )
        followers = 0
        async for _ in self.follows.of_match(match_id, now // 1000):
            followers += 1
        hashes = {
            view: await self.hashes.get(match_id, view) for view in (NEUTRAL, *fixture.team_ids)
        }
        return Remembered(
            fixture=fixture,
            active=await self.active.get(match_id),
            processing=await self.processing.get(match_id, now // 1000),
            hashes={view: state.hash for view, state in hashes.items() if state is not None},
            activities=dict(statuses),
            followers=followers,
        )
