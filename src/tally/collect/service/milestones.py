"""Milestones: creates, reads, edits, archives and deletes them. The engine advances them.

Every change is conditional on the version that was read, which decides races with minting.
"""

from dataclasses import dataclass, replace

from tally.collect.model.records import (
    MAX_KEPT_MILESTONES,
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
            counts_manual=model.meta.counts_manual,
        )
        return await self._write(milestone, counts_past=start < now)

    async def _write(self, milestone: Milestone, *, counts_past: bool) -> MilestoneWithAwards:
        if counts_past:
            # Fails before anything is written if there are too many workouts.
            await self.engine.workouts.of_milestone(milestone)
        await self._insert(milestone)
        facts: dict[str, str | int] = {
            "milestone": milestone.milestone_id,
            "model": milestone.model_id,
            "target": milestone.total_target,
        }
        self.audit.record("MILESTONE_CREATED", milestone.user_id, facts)
        if not counts_past:
            return MilestoneWithAwards(milestone)
        try:
            return await self.engine.recompute(milestone.user_id, milestone.milestone_id)
        except Conflict:
            # Too many workouts since the check: the milestone exists, so it is marked as stalled.
            await self.engine.advance_all(milestone.user_id)
            return await self.engine.get(milestone.user_id, milestone.milestone_id)

    async def _insert(self, milestone: Milestone) -> None:
        """Create the milestone unless there are too many, also with concurrent requests."""

        async def run() -> bool:
            created = await self.repository.milestones_created(milestone.user_id)
            if created is None:
                raise Unauthenticated("The account is being deleted", code="invalid_session")
            await self._check_count(milestone.user_id)
            return await self.repository.create_milestone(milestone, created)

        await self.engine.retry(run)

    async def _check_count(self, user_id: str) -> None:
        kept = await self.repository.milestones(user_id)
        if sum(entry.milestone.archived_at is None for entry in kept) >= MAX_MILESTONES:
            raise Conflict(
                f"An account has at most {MAX_MILESTONES} milestones that are not archived;"
                " delete or archive one",
                code="too_many_milestones",
            )
        if len(kept) >= MAX_KEPT_MILESTONES:
            raise Conflict(
                f"An account keeps at most {MAX_KEPT_MILESTONES} milestones",
                code="too_many_milestones",
            )

    async def change_target(
        self, user_id: str, milestone_id: str, total_target: int
    ) -> MilestoneWithAwards:
        """Change the target until the first part is minted."""
        current = await self.engine.get_open(user_id, milestone_id)
        check_goal(total_target, current.milestone.parts_total)
        changed = await self.engine.change_target(user_id, milestone_id, total_target)
        facts: dict[str, str | int] = {"milestone": milestone_id, "target": total_target}
        self.audit.record("MILESTONE_TARGET_CHANGED", user_id, facts)
        return changed

    async def archive(self, user_id: str, milestone_id: str) -> MilestoneWithAwards:
        """Archive a milestone: it stays readable with its awards, and advances no more."""

        async def run() -> bool:
            current = await self.engine.get(user_id, milestone_id)
            if current.milestone.archived_at is not None:
                return True
            now = rfc3339(self.clock.now())
            archived = replace(
                current.milestone,
                archived_at=now,
                updated_at=now,
                version=current.milestone.version + 1,
            )
            if not await self.repository.mint(archived, ()):
                return False
            self.audit.record("MILESTONE_ARCHIVED", user_id, {"milestone": milestone_id})
            return True

        await self.engine.retry(run)
        return await self.engine.get(user_id, milestone_id)

    async def delete(self, user_id: str, milestone_id: str) -> None:
        """Delete a milestone without awards."""

        async def run() -> bool:
            current = await self.engine.get(user_id, milestone_id)
            if current.awards:
                raise Conflict(
                    "The milestone has awards; archive it instead", code="milestone_has_awards"
                )
            return await self.repository.delete_milestone(current.milestone)

        await self.engine.retry(run)
        self.audit.record("MILESTONE_DELETED", user_id, {"milestone": milestone_id})

    async def all(self, user_id: str) -> list[MilestoneWithAwards]:
        return await self.repository.milestones(user_id)

    async def get(self, user_id: str, milestone_id: str) -> MilestoneWithAwards:
        return await self.engine.get(user_id, milestone_id)
