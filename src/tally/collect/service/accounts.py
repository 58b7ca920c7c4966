"""User accounts: the summary and the workouts."""

from dataclasses import dataclass

from tally.collect.model.records import (
    PageKey,
    Profile,
    StravaConnection,
)
from tally.collect.model.workouts import Workout
from tally.collect.repository.main import CollectRepository
from tally.collect.service.linking import LinkingService
from tally.collect.service.workout_reader import WorkoutReader
from tally.errors import Unauthenticated


@dataclass(frozen=True, slots=True)
class AccountSummary:
    """A profile with its Strava connection and the number of its items.

    `workouts` is at most 10,001: there are more than 10,000.
    """

    profile: Profile
    connection: StravaConnection | None
    workouts: int
    milestones: int
    awards: int


@dataclass(frozen=True, slots=True)
class AccountService:
    """Reads accounts."""

    repository: CollectRepository
    reader: WorkoutReader
    linking: LinkingService

    async def summary(self, user_id: str) -> AccountSummary:
        profile = await self.repository.profile(user_id)
        if profile is None:
            raise Unauthenticated("The account is being deleted", code="invalid_session")
        milestones = await self.repository.milestones(user_id)
        return AccountSummary(
            profile,
            await self.linking.status(user_id),
            await self.reader.count(user_id),
            len(milestones),
            sum(len(milestone.awards) for milestone in milestones),
        )

    async def workouts(
        self, user_id: str, limit: int, start: PageKey | None
    ) -> tuple[list[Workout], PageKey | None]:
        """Return a page of workouts, newest first, and the start key of the next page."""
        return await self.reader.page(user_id, limit, start)
