"""Milestones: creates and reads them. The progress engine advances them."""

from dataclasses import dataclass

from tally.collect.model.records import (
    MAX_MILESTONES,
    Metric,
    Milestone,
    MilestoneWithAwards,
    Sport,
)
from tally.collect.model.rules import check_goal, check_period
from tally.collect.model.validation import parse_time
from tally.collect.repository.main import CollectRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.models import ModelCatalog
from tally.errors import Conflict, Unauthenticated
from tally.kit.clock import Clock, rfc3339
from tally.kit.ids import SortableIds


@dataclass(frozen=True, slots=True)
class Goal:
    """The parameters of a new milestone."""

    model_id: str
    sport: Sport
    metric: Metric
    total_target: int
    period_start: str | None = None
    period_end: str | None = None


@dataclass(frozen=True, slots=True)
class MilestoneService:
    """Creates and reads the milestones of a user."""

    repository: CollectRepository
    models: ModelCatalog
    engine: ProgressEngine
    audit: AuditTrail
    clock: Clock
    ids: SortableIds

    async def create(self, user_id: str, goal: Goal) -> MilestoneWithAwards:
        """Create a milestone. Existing workouts within its period count immediately."""
        now = rfc3339(self.clock.now())
        model = await self.models.get(goal.model_id)
        check_goal(goal.total_target, model.meta.parts_total)
        start = (
            now if goal.period_start is None else parse_time(goal.period_start, "periodStartAtUtc")
        )
        end = None if goal.period_end is None else parse_time(goal.period_end, "periodEndAtUtc")
        check_period(start, end)
        if len(await self.repository.milestones(user_id)) >= MAX_MILESTONES:
            raise Conflict(
                f"An account has at most {MAX_MILESTONES} milestones", code="too_many_milestones"
            )
        milestone = Milestone(
            milestone_id=self.ids.next(),
            user_id=user_id,
            model_id=goal.model_id,
            sport=goal.sport,
            metric=goal.metric,
            total_target=goal.total_target,
            parts_total=model.meta.parts_total,
            period_start=start,
            period_end=end,
            created_at=now,
            updated_at=now,
        )
        return await self._write(milestone, counts_past=start < now)

    async def _write(self, milestone: Milestone, *, counts_past: bool) -> MilestoneWithAwards:
        if counts_past:
            # Fails before anything is written if there are too many workouts.
            await self.repository.workout_projections(milestone.user_id)
        if not await self.repository.create_milestone(milestone):
            raise Unauthenticated("The account is being deleted", code="invalid_session")
        facts: dict[str, str | int] = {
            "milestone": milestone.milestone_id,
            "model": milestone.model_id,
            "target": milestone.total_target,
        }
        self.audit.record("MILESTONE_CREATED", milestone.user_id, facts)
        return (
            await self.engine.recompute(milestone.user_id, milestone.milestone_id)
            if counts_past
            else MilestoneWithAwards(milestone)
        )

    async def all(self, user_id: str) -> list[MilestoneWithAwards]:
        return await self.repository.milestones(user_id)

    async def get(self, user_id: str, milestone_id: str) -> MilestoneWithAwards:
        return await self.engine.get(user_id, milestone_id)
