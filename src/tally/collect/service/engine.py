"""The progress engine: sums eligible workouts, advances milestones and mints each part once.

A run reads the milestones with their ledgers, then the workouts of their sports and periods. It
writes each changed milestone in one transaction with its new awards, on the condition that its
version is unchanged. A run that loses a race reads again, a few times, with jittered back-off. A
milestone with too many workouts is marked as stalled.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tally.collect.model.records import (
    Award,
    Milestone,
    MilestoneWithAwards,
)
from tally.collect.model.rules import (
    Advance,
    advance,
    part_threshold,
    retarget,
    total_progress,
)
from tally.collect.model.workouts import Workout, WorkoutProjection
from tally.collect.repository.main import CollectRepository
from tally.collect.service.audit import AuditTrail
from tally.collect.service.models import ModelCatalog
from tally.collect.service.workout_reader import WorkoutReader
from tally.errors import Conflict, NotFound, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.retry import full_jitter

MAX_ATTEMPTS: Final = 12
INITIAL_BACKOFF_SECONDS: Final = 0.01
MAX_BACKOFF_SECONDS: Final = 0.5
# The length of a sortable id. A shorter id would be a key prefix of several milestones.
MILESTONE_ID_LENGTH: Final = 26
TOO_MANY_WORKOUTS: Final = "too_many_workouts"

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class ProgressEngine:
    """Advances milestones; the change log carries the changes to subscribers."""

    repository: CollectRepository
    workouts: WorkoutReader
    models: ModelCatalog
    clock: Clock
    audit: AuditTrail
    rng: random.Random = field(default_factory=random.SystemRandom)

    async def advance_all(self, user_id: str, written: Sequence[Workout] = ()) -> None:
        """Advance all active milestones of a user.

        `written` are the workouts that the caller has just written: the index may still lack them.
        """

        async def run() -> bool:
            # Milestones first, so that the workouts are at least as recent.
            active = [
                current
                for current in await self.repository.milestones(user_id)
                if current.milestone.can_advance
            ]
            found = await self.workouts.of_milestones(
                (current.milestone for current in active), written
            )
            outcomes = [
                await self._advance(current, found[current.milestone.milestone_id])
                for current in active
            ]
            return all(outcomes)

        await self.retry(run)

    async def recompute(self, user_id: str, milestone_id: str) -> MilestoneWithAwards:
        """Repair one milestone, even a completed one, and return it.

        Raise Conflict, and write nothing, if it is archived or has too many workouts.
        """

        async def run() -> bool:
            current = await self.get_open(user_id, milestone_id)
            return await self._advance(current, await self.workouts.of_milestone(current.milestone))

        await self.retry(run)
        return await self.get(user_id, milestone_id)

    async def change_target(
        self, user_id: str, milestone_id: str, total_target: int
    ) -> MilestoneWithAwards:
        """Change the target of a milestone without awards, and mint what is earned at once."""

        async def run() -> bool:
            current = await self.get_open(user_id, milestone_id)
            # A repeated request is not an error.
            if current.awards and total_target != current.milestone.total_target:
                raise Conflict(
                    "The target is fixed when the first part is minted",
                    code="milestone_has_awards",
                )
            step = retarget(current, total_target, rfc3339(self.clock.now()))
            return await self._write(current, step)

        await self.retry(run)
        return await self.get(user_id, milestone_id)

    async def get_open(self, user_id: str, milestone_id: str) -> MilestoneWithAwards:
        """Return a milestone; raise Conflict if it is archived."""
        current = await self.get(user_id, milestone_id)
        if current.milestone.archived_at is not None:
            raise Conflict("The milestone is archived", code="milestone_archived")
        return current

    async def get(self, user_id: str, milestone_id: str) -> MilestoneWithAwards:
        found = (
            await self.repository.milestone(user_id, milestone_id)
            if is_milestone_id(milestone_id)
            else None
        )
        if found is None:
            raise NotFound("The milestone does not exist", code="milestone_not_found")
        return found

    async def retry(self, run: Callable[[], Awaitable[bool]]) -> None:
        """Repeat a run that reads and writes until it returns True: no race was lost."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if await run():
                return
            await self.clock.sleep(
                full_jitter(attempt, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, self.rng)
            )
        raise Unavailable("The milestones change too often; retry", retry_after=1)

    async def _advance(
        self, current: MilestoneWithAwards, workouts: Sequence[WorkoutProjection] | None
    ) -> bool:
        """Write the new state, if any. Return False if the milestone changed in the meantime."""
        if workouts is None:
            return await self._stall(current)
        step = advance(
            current, total_progress(current.milestone, workouts), rfc3339(self.clock.now())
        )
        return await self._write(current, step)

    async def _write(self, current: MilestoneWithAwards, step: Advance) -> bool:
        if not step.is_changed:
            return True
        awards = await self._awards(step)
        if not await self.repository.mint(step.milestone, awards):
            return False
        self._report(current.milestone, step.milestone, awards)
        return True

    async def _stall(self, current: MilestoneWithAwards) -> bool:
        """Mark a milestone that has too many workouts, so that its owner and operators see it."""
        before = current.milestone
        if before.stalled_reason is not None:
            return True
        stalled = replace(
            before,
            stalled_reason=TOO_MANY_WORKOUTS,
            updated_at=rfc3339(self.clock.now()),
            version=before.version + 1,
        )
        if not await self.repository.mint(stalled, ()):
            return False
        facts: dict[str, str | int] = {"milestone": before.milestone_id, "why": TOO_MANY_WORKOUTS}
        self.audit.record("MILESTONE_STALLED", before.user_id, facts)
        _log.warning(
            "Milestone stalled",
            action="milestone_stalled",
            milestone=before.milestone_id,
            reason=TOO_MANY_WORKOUTS,
        )
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
        """Audit and log a change."""
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


def is_milestone_id(text: str) -> bool:
    return len(text) == MILESTONE_ID_LENGTH and text.isascii() and text.isalnum()
