"""The engine: measures what counts, moves milestones, and mints parts, each once.

A run reads the milestones with their ledgers, then the workouts, and writes each milestone that
moved in one transaction with its new awards, if it is still as it was read. Whoever lost a race
reads again: a few times, with jitter.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tally.collect.model import Award, Effort, Held, Milestone, Status
from tally.collect.repository.main import CollectRepository
from tally.collect.rules import Advance, advance, measured, threshold
from tally.collect.service.audit import AuditTrail
from tally.collect.service.models import ModelShelf
from tally.collect.service.ports import Announce
from tally.errors import NotFound, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.retry import full_jitter

ATTEMPTS: Final = 12
FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5
# As long as a sortable id; anything else is no milestone of ours, and no prefix of several.
ID_LENGTH: Final = 26

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class ProgressEngine:
    """`announce` tells those who watch a milestone of what has been written."""

    main: CollectRepository
    shelf: ModelShelf
    clock: Clock
    audit: AuditTrail
    announce: Announce
    chance: random.Random = field(default_factory=random.SystemRandom)

    async def move_all(self, user_id: str) -> None:
        """Move every active milestone of a person to where the workouts have brought it."""

        async def read() -> list[Held]:
            return [
                held
                for held in await self.main.milestones(user_id)
                if held.milestone.status is Status.ACTIVE
            ]

        await self._settle(user_id, read)

    async def recompute(self, user_id: str, milestone_id: str) -> Held:
        """Repair one milestone, also one that is completed, and say how it stands."""

        async def read() -> list[Held]:
            return [await self.held(user_id, milestone_id)]

        await self._settle(user_id, read)
        return await self.held(user_id, milestone_id)

    async def held(self, user_id: str, milestone_id: str) -> Held:
        found = (
            await self.main.milestone(user_id, milestone_id)
            if is_milestone_id(milestone_id)
            else None
        )
        if found is None:
            raise NotFound("There is no such milestone", code="milestone_not_found")
        return found

    async def _settle(self, user_id: str, read: Callable[[], Awaitable[list[Held]]]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            # Milestones first: the workouts are then at least as new as what they are compared
            # with.
            waiting = await read()
            if not waiting:
                return
            efforts = await self.main.efforts(user_id)
            moved = [await self._move(held, efforts) for held in waiting]
            if all(moved):
                return
            await self.clock.sleep(full_jitter(attempt, FIRST_PAUSE, LONGEST_PAUSE, self.chance))
        raise Unavailable("The milestones are changing too fast; try again", retry_after=1)

    async def _move(self, held: Held, efforts: Sequence[Effort]) -> bool:
        """Whether the milestone stands where it should; False where another was faster."""
        step = advance(held, measured(held.milestone, efforts), rfc3339(self.clock.now()))
        if not step.is_changed:
            return True
        awards = await self._awards(step)
        if not await self.main.mint(step.milestone, awards):
            return False
        self._tell(held.milestone, step.milestone, awards)
        return True

    async def _awards(self, step: Advance) -> list[Award]:
        if not step.minted:
            return []
        milestone = step.milestone
        parts = {part.index: part for part in (await self.shelf.get(milestone.model_id)).parts}
        return [
            Award(
                milestone.user_id,
                milestone.milestone_id,
                milestone.model_id,
                parts[index],
                threshold(milestone.total_target, index, milestone.parts_total),
                milestone.updated_at,
                logs.current_context().correlation_id,
            )
            for index in step.minted
        ]

    def _tell(self, before: Milestone, after: Milestone, awards: Sequence[Award]) -> None:
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
        # Progress is what happens all day; a part is news.
        tell = _log.info if awards else _log.debug
        tell(
            "Milestone moved",
            action="milestone_move",
            milestone=after.milestone_id,
            percent=after.percent,
            minted=len(awards),
        )
        self.announce(after, awards)


def is_milestone_id(text: str) -> bool:
    return len(text) == ID_LENGTH and text.isascii() and text.isalnum()
