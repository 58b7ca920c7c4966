"""Milestones: made, listed and shown. What moves them is the engine."""

from dataclasses import dataclass

from tally.collect.model import MAX_MILESTONES, Held, Metric, Milestone, Sport, moment
from tally.collect.repository.main import CollectRepository
from tally.collect.rules import check_goal, check_period
from tally.collect.service.audit import AuditTrail
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.models import ModelShelf
from tally.errors import Conflict, Unauthenticated
from tally.kit.clock import Clock, rfc3339
from tally.kit.ids import SortableIds


@dataclass(frozen=True, slots=True)
class Goal:
    """What somebody sets out to do."""

    model_id: str
    sport: Sport
    metric: Metric
    total_target: int
    period_start: str | None = None
    period_end: str | None = None


@dataclass(frozen=True, slots=True)
class MilestoneService:
    """A person's goals."""

    main: CollectRepository
    shelf: ModelShelf
    engine: ProgressEngine
    audit: AuditTrail
    clock: Clock
    ids: SortableIds

    async def create(self, user_id: str, goal: Goal) -> Held:
        """A new milestone, moved at once by the workouts that count for it already."""
        now = rfc3339(self.clock.now())
        model = await self.shelf.get(goal.model_id)
        check_goal(goal.total_target, model.meta.parts_total)
        start = now if goal.period_start is None else moment(goal.period_start, "periodStartAtUtc")
        end = None if goal.period_end is None else moment(goal.period_end, "periodEndAtUtc")
        check_period(start, end)
        if len(await self.main.milestones(user_id)) >= MAX_MILESTONES:
            raise Conflict(
                f"Nobody may have more than {MAX_MILESTONES} milestones", code="too_many_milestones"
            )
        made = Milestone(
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
        return await self._begin(made, counts_past=start < now)

    async def _begin(self, made: Milestone, *, counts_past: bool) -> Held:
        if counts_past:
            # More workouts than can be looked at: said before anything is written.
            await self.main.efforts(made.user_id)
        if not await self.main.create_milestone(made):
            raise Unauthenticated("This account is being deleted", code="invalid_session")
        facts: dict[str, str | int] = {
            "milestone": made.milestone_id,
            "model": made.model_id,
            "target": made.total_target,
        }
        self.audit.record("MILESTONE_CREATED", made.user_id, facts)
        return (
            await self.engine.recompute(made.user_id, made.milestone_id)
            if counts_past
            else Held(made)
        )

    async def all(self, user_id: str) -> list[Held]:
        return await self.main.milestones(user_id)

    async def get(self, user_id: str, milestone_id: str) -> Held:
        return await self.engine.held(user_id, milestone_id)
