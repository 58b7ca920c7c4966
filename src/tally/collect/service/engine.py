"""The progress engine: sums eligible workouts, advances milestones and mints each part once.

A run reads the milestones with their ledgers, then the workouts. It writes each changed milestone
in one transaction with its new awards, on the condition that its version is unchanged. A run that
loses a race reads again, a few times, with jittered back-off.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tally.collect.model.records import (
    Award,
    Milestone,
    MilestoneStatus,
    MilestoneWithAwards,
    WorkoutProjection,
)
from tally.collect.model.rules import Advance, advance, part_threshold, total_progress
from tally.collect.repository.main import CollectRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.models import ModelCatalog
from tally.collect.service.ports import Publisher
from tally.errors import NotFound, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.retry import full_jitter

MAX_ATTEMPTS: Final = 12
INITIAL_BACKOFF_SECONDS: Final = 0.01
MAX_BACKOFF_SECONDS: Final = 0.5
# The length of a sortable id. A shorter id would be a key prefix of several milestones.
MILESTONE_ID_LENGTH: Final = 26

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class ProgressEngine:
    """Advances milestones and publishes the changes."""

    repository: CollectRepository
    models: ModelCatalog
    clock: Clock
    audit: AuditTrail
    publisher: Publisher
    rng: random.Random = field(default_factory=random.SystemRandom)

    async def advance_all(self, user_id: str) -> None:
        """Advance all active milestones of a user."""

        async def read() -> list[MilestoneWithAwards]:
            return [
                current
                for current in await self.repository.milestones(user_id)
                if current.milestone.status is MilestoneStatus.ACTIVE
            ]

        await self._advance_with_retries(user_id, read)

    async def recompute(self, user_id: str, milestone_id: str) -> MilestoneWithAwards:
        """Repair one milestone, even a completed one, and return it."""

        async def read() -> list[MilestoneWithAwards]:
            return [await self.get(user_id, milestone_id)]

        await self._advance_with_retries(user_id, read)
        return await self.get(user_id, milestone_id)

    async def get(self, user_id: str, milestone_id: str) -> MilestoneWithAwards:
        found = (
            await self.repository.milestone(user_id, milestone_id)
            if is_milestone_id(milestone_id)
            else None
        )
        if found is None:
            raise NotFound("The milestone does not exist", code="milestone_not_found")
        return found

    async def _advance_with_retries(
        self, user_id: str, read: Callable[[], Awaitable[list[MilestoneWithAwards]]]
    ) -> None:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            # Milestones first, so that the workouts are at least as recent.
            milestones = await read()
            if not milestones:
                return
            workouts = await self.repository.workout_projections(user_id)
            written = [await self._advance(current, workouts) for current in milestones]
            if all(written):
                return
            await self.clock.sleep(
                full_jitter(attempt, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, self.rng)
            )
        raise Unavailable("The milestones change too often; retry", retry_after=1)

    async def _advance(
        self, current: MilestoneWithAwards, workouts: Sequence[WorkoutProjection]
    ) -> bool:
        """Write the new state, if any. Return False if the milestone changed in the meantime."""
        step = advance(
            current, total_progress(current.milestone, workouts), rfc3339(self.clock.now())
        )
        if not step.is_changed:
            return True
        awards = await self._awards(step)
        if not await self.repository.mint(step.milestone, awards):
            return False
        self._report(current.milestone, step.milestone, awards)
        return True

    async def _awards(self, step: Advance) -> list[Award]:
        if not step.minted:
            return []
        milestone = step.milestone
        parts = {part.index: part for part in (await self.models.get(milestone.model_id)).parts}
        return [
            Award(
                milestone.user_id,
                milestone.milestone_id,
                milestone.model_id,
                parts[index],
                part_threshold(milestone.total_target, index, milestone.parts_total),
                milestone.updated_at,
                logs.current_context().correlation_id,
            )
            for index in step.minted
        ]

    def _report(self, before: Milestone, after: Milestone, awards: Sequence[Award]) -> None:
        """Audit, log and publish a change."""
        for award in awards:
            facts: dict[str, str | int] = {
                "milestone": after.milestone_id,
                "part": award.part.index,
            }
            self.audit.record("MILESTONE_PART_MINTED", after.user_id, facts)
        if after.status is not before.status:
            self.audit.record(
                "MILESTONE_COMPLETED", after.user_id, {"milestone": after.milestone_id}
            )
        log = _log.info if awards else _log.debug  # progress alone is too frequent for info
        log(
            "Milestone advanced",
            action="milestone_advanced",
            milestone=after.milestone_id,
            percent=after.percent,
            minted=len(awards),
        )
        self.publisher.publish(after, awards)


def is_milestone_id(text: str) -> bool:
    return len(text) == MILESTONE_ID_LENGTH and text.isascii() and text.isalnum()
