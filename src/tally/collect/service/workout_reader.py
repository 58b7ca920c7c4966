"""Reads workouts through their indexes, after adding index keys to items that lack them.

Items written before the indexes existed get their keys the first time a user's workouts are needed.
Each key is written on the condition that the item is still the one that was read, so that any
number of processes may do it at once, and an interrupted run continues where items lack keys.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally.collect.model.records import Milestone, PageKey, Sport
from tally.collect.model.workouts import Workout, WorkoutProjection, merge_written
from tally.collect.repository.main import CollectRepository
from tally.errors import Conflict, Unavailable
from tally.kit import logs
from tally.kit.ttl_cache import TTLCache

# A profile that is indexed stays indexed. The cache saves a read per event.
INDEXED_CACHE_SECONDS: Final = 3600.0
MAX_CACHED_PROFILES: Final = 10_000
# One request adds keys to about so many workouts; the next one continues where items lack keys.
MAX_INDEXED_PER_REQUEST: Final = 50_000
MAX_CONCURRENT_UPDATES: Final = 8

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class WorkoutReader:
    """Reads the workouts of users."""

    repository: CollectRepository
    indexed: TTLCache[str, bool]
    max_indexed: int = MAX_INDEXED_PER_REQUEST

    async def page(
        self, user_id: str, limit: int, start: PageKey | None
    ) -> tuple[list[Workout], PageKey | None]:
        """Return a page of workouts, newest first, and the start key of the next page."""
        await self.ensure_indexed(user_id)
        return await self.repository.workouts(user_id, limit, start)

    async def count(self, user_id: str) -> int:
        """Count the workouts, up to one more than 10,000."""
        await self.ensure_indexed(user_id)
        return await self.repository.count_workouts(user_id)

    async def of_milestone(
        self, milestone: Milestone, written: Iterable[Workout] = ()
    ) -> list[WorkoutProjection]:
        """Return the workouts of a milestone's sport and period; Conflict if there are too many.

        `written` are workouts that the caller has just written: the index may still lack them.
        """
        await self.ensure_indexed(milestone.user_id)
        found = await self.repository.counted_workouts(
            milestone.user_id, milestone.sport, milestone.period_start, milestone.period_end
        )
        return merge_written(milestone.sport, found, written)

    async def of_milestones(
        self, milestones: Iterable[Milestone], written: Sequence[Workout] = ()
    ) -> Mapping[str, list[WorkoutProjection] | None]:
        """Return the workouts of several milestones by id; None for one with too many.

        Milestones of one sport share a query over all of their periods, if it is within the bound.
        """
        by_sport: dict[tuple[str, Sport], list[Milestone]] = {}
        for milestone in milestones:
            by_sport.setdefault((milestone.user_id, milestone.sport), []).append(milestone)
        found: dict[str, list[WorkoutProjection] | None] = {}
        for group in by_sport.values():
            shared = await self._shared(group, written)
            for milestone in group:
                found[milestone.milestone_id] = (
                    shared if shared is not None else await self._own(milestone, written)
                )
        return found

    async def _shared(
        self, milestones: Sequence[Milestone], written: Sequence[Workout]
    ) -> list[WorkoutProjection] | None:
        first, user_id = milestones[0], milestones[0].user_id
        await self.ensure_indexed(user_id)
        start = min(milestone.period_start for milestone in milestones)
        ends = [milestone.period_end for milestone in milestones]
        end = None if None in ends else max(filter(None, ends))
        try:
            found = await self.repository.counted_workouts(user_id, first.sport, start, end)
        except Conflict:
            return None
        return merge_written(first.sport, found, written)

    async def _own(
        self, milestone: Milestone, written: Sequence[Workout]
    ) -> list[WorkoutProjection] | None:
        try:
            return await self.of_milestone(milestone, written)
        except Conflict:
            return None

    async def ensure_indexed(self, user_id: str) -> None:
        """Add index keys to the workouts of a user that lack them. Idempotent."""
        if self.indexed.get(user_id):
            return
        if not await self.repository.are_workouts_indexed(user_id):
            await self._add_index_keys(user_id)
            await self.repository.mark_workouts_indexed(user_id)
        self.indexed.put(user_id, True)

    async def _add_index_keys(self, user_id: str) -> None:
        slots, start = asyncio.Semaphore(MAX_CONCURRENT_UPDATES), None
        added = 0

        async def add(workout: Workout) -> None:
            async with slots:
                await self.repository.add_index_keys(workout)

        while added < self.max_indexed:
            lacking, start = await self.repository.workouts_without_keys(user_id, start)
            await asyncio.gather(*(add(workout) for workout in lacking))
            added += len(lacking)
            if start is None:
                _log.info("Workouts indexed", action="workouts_indexed", user_id=user_id, new=added)
                return
        raise Unavailable("The workouts are being indexed; retry", retry_after=1)
