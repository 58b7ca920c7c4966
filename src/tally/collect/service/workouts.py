"""Workouts, as their owner sees them: newest first, page by page, without those that were deleted."""

from dataclasses import dataclass

from tally.collect.model import PageKey, Workout
from tally.collect.repository.main import CollectRepository


@dataclass(frozen=True, slots=True)
class WorkoutService:
    """A person's workouts. What writes them is the worker."""

    main: CollectRepository

    async def page(
        self, user_id: str, limit: int, start: PageKey | None
    ) -> tuple[list[Workout], PageKey | None]:
        """So many workouts, fewer where some of them were deleted, and where the next page starts."""
        return await self.main.workouts(user_id, limit, start)
